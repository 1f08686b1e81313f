/* Loops of every kind. A comment marks the line that must name a loop: `f.1` is a loop of the
   procedure `f`, `f.1.1` the first in it; `~f` says that there is some loop. */

extern void abort(void);
extern int external(int);
extern void use(int);

int single(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) /* single */
        s += external(a[i]);
    return s;
}

double nested(const double *a, const double *b, double *c, int n) {
    for (int i = 0; i < n; i++)             /* nested.1 */
        for (int j = 0; j < n; j++) {       /* nested.1.1 */
            double t = 0;
            for (int k = 0; k < n; k++)     /* nested.1.1.1 */
                t += a[i * n + k] * b[k * n + j];
            c[i * n + j] = t;
        }
    return c[0];
}

int siblings(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) /* siblings.1 */
        s ^= external(i);
    while (s > 100)             /* siblings.2 */
        s = external(s);
    return s;
}

int exits(const int *a, int n) {
    for (int i = 0; i < n; i++) { /* exits */
        if (a[i] == 7)
            return external(i);
        if (a[i] == 9)
            break;
        if (external(a[i]) == 3)
            continue;
        use(a[i]);
    }
    return -1;
}

int leave_two(const int *a, int n) {
    for (int i = 0; i < n; i++)       /* leave_two.1 */
        for (int j = 0; j < n; j++) { /* leave_two.1.1 */
            if (external(a[i * n + j]))
                goto out;
            use(j);
        }
out:
    return external(n);
}

int never_comes_back(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { /* never_comes_back */
        if (a[i] < 0)
            abort();
        s += external(a[i]);
    }
    return s;
}

int bottom_tested(int n) {
    do {
        n = external(n); /* bottom_tested: the first line with code */
    } while (n > 3);
    return n;
}

int endless(void) {
    int n = 0;
    for (;;) {
        use(n); /* endless: the first line with code */
        n = external(n);
        if (n == 1)
            break;
        use(n + 3);
    }
    return n;
}

int table(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { /* table.1 */
        switch (a[i]) {
        case 0: s += external(1); break;
        case 1: s -= external(s); break;
        case 2: use(s); break;
        case 3: s ^= 5; use(3); break;
        case 4: s = external(s + 4); break;
        case 5: use(9); use(s); break;
        case 6:
            while (s > 1000)      /* table.1.1 */
                s = external(s);
            break;
        case 7: s *= 3; use(7); break;
        case 9: return s;
        default: s++;
        }
    }
    return s;
}

int tables(const int *a, int n) {
    int s = 0;
    while (n-- > 0) {             /* tables */
        switch (a[n] & 7) {
        case 0: use(1); break;
        case 1: use(s); break;
        case 2: s = external(2); break;
        case 3: s = external(s); break;
        case 4: use(4); s++; break;
        case 5: use(5); s--; break;
        case 6: use(6); use(8); break;
        case 7: s ^= external(7); break;
        }
        switch (s) {
        case 10: use(11); break;
        case 11: use(s + 1); break;
        case 12: s = external(22); break;
        case 13: s = external(s + 2); break;
        case 14: use(44); s++; break;
        case 15: use(55); s--; break;
        }
    }
    return s;
}

float vectorised(float *restrict a, const float *restrict b, int n) {
    for (int i = 0; i < n; i++) /* vectorised */
        a[i] = a[i] * 2.0f + b[i];
    return a[0];
}

unsigned unrolled(const unsigned *a, unsigned n) {
    unsigned s = 0;
#pragma GCC unroll 4
    for (unsigned i = 0; i < n; i++) /* unrolled */
        s = (s ^ a[i]) * 31;
    return s;
}

static inline __attribute__((always_inline)) int inlined_sum(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) /* inlined_sum */
        s += external(a[i]);
    return s;
}

int calls_inlined(int *const *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) /* calls_inlined */
        s ^= inlined_sum(a[i], n);
    return s;
}

int irreducible(int n) {
    int s = 0;
    if (n & 1)
        goto middle;
    for (;;) {
        s = external(s); /* ~irreducible */
        if (s == 3)
            return 1;
    middle:
        use(s);
        if (s == 5)
            return 2;
    }
}

unsigned interpreter(const unsigned char *code, unsigned s) {
    static const void *const go[] = {&&add, &&sub, &&mul, &&jump, &&stop};
    goto *go[*code]; /* ~interpreter */
add:
    s += external(1);
    goto *go[*++code];
sub:
    s -= external(2);
    goto *go[*++code];
mul:
    s *= external(3);
    goto *go[*++code];
jump:
    code += external(s);
    goto *go[*code];
stop:
    return s;
}

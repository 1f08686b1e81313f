//! Names of procedures in languages other than Rust and C++: qualified as their users write them. A
//! language whose compiler is not installed is named loudly.

use crate::common::{Folder, has_name, scopes_named, whole};
use hpcstruct_rs::Structure;
use std::process::Command;

/// Builds a program named `p` from `source`; `None`, and a word, where there is no compiler.
fn built(test: &str, file: &str, source: &str, command: &[&str]) -> Option<Structure> {
    let folder = Folder::new(&format!("languages-{test}"));
    folder.write(file, source);
    let (program, arguments) = command.split_first().expect("a command");
    if Command::new(program).arg("--version").output().is_err() {
        println!("SKIPPED: {program} is not installed; its programs are not tested");
        return None;
    }
    folder.run(program, arguments);
    Some(whole(&folder.0.join("p")))
}

fn assert_names(structure: &Structure, names: &[&str]) {
    for name in names {
        assert!(has_name(structure, name), "no {name}");
    }
}

const FORTRAN: &str = "module grid
  implicit none
  interface
    module subroutine far(n, s)
      integer, intent(in) :: n
      real(8), intent(inout) :: s
    end subroutine
  end interface
contains
  function total(a, n) result(s)
    integer, intent(in) :: n
    real(8), intent(in) :: a(n)
    real(8) :: s
    integer :: j
    s = 0
    do j = 1, n
      s = s + inner(a(j))
    end do
  contains
    function inner(x) result(y)
      real(8), intent(in) :: x
      real(8) :: y
      y = x * x + n
    end function
  end function
end module
submodule (grid) faraway
contains
  module procedure far
    integer :: i
    do i = 1, n
      s = s * 1.5d0 + i
    end do
  end procedure
end submodule
subroutine plain(s)
  real(8), intent(inout) :: s
  integer :: i
  !$omp parallel do
  do i = 1, 10
    call nothing(i)
  end do
  s = s + 1
end subroutine
subroutine nothing(i)
  integer :: i
  if (i > 1000) print *, i
end subroutine
program main
  use grid
  real(8) :: a(50), s
  a = 1.25d0
  s = total(a, 50)
  call far(10, s)
  call plain(s)
  print *, s
end program
";

#[test]
fn fortran_has_modules_and_procedures_within_procedures() {
    let compile = |test, flags: &[&str]| {
        let command = [&["gfortran", "p.f90", "-o", "p"], flags].concat();
        built(test, "p.f90", FORTRAN, &command)
    };
    let Some(structure) = compile("fortran-0", &["-g", "-O0", "-fopenmp"]) else {
        return;
    };
    let mut names =
        vec!["grid::total", "grid::total::inner", "grid::faraway::far", "plain", "plain._omp_fn.0"];
    assert_names(&structure, &names);
    // Inlined ones, too: `inner` is in a loop of `total`.
    let structure = compile("fortran-2", &["-g", "-O2", "-fno-ipa-icf"]).expect("as above");
    names.pop();
    assert_names(&structure, &names);
    assert!(!scopes_named(&structure, "grid::total::inner").is_empty());
    // Of symbols alone the module is known.
    let structure = compile("fortran-s", &["-O0"]).expect("as above");
    assert_names(&structure, &["grid::total", "grid::far"]);
}

/// Nested functions of GNU C, and declarations within a function, which nest nothing.
const C: &str = r#"
volatile int sink;
int main(int argc, char **argv) {
  int later(int);
  extern int other(int, int);
  __attribute__((noinline)) int nested(int x) {
    int s = 0;
    for (int i = 0; i < x; i++) s += argc * i;
    return s;
  }
  return later(argc) + nested(3) + other(1, 2) + !argv;
}
__attribute__((noinline)) int later(int x) { sink = x; return x * 3; }
__attribute__((noinline)) int other(int x, int y) { sink = x; return x * y; }
"#;

#[test]
fn functions_within_functions_of_c_have_both_names() {
    for level in ["-O0", "-O2"] {
        let command = ["gcc", "-g", level, "p.c", "-o", "p"];
        let structure = built("c", "p.c", C, &command).expect("gcc builds all tests");
        assert_names(&structure, &["main", "main::nested", "later", "other"]);
        assert!(!has_name(&structure, "nested"));
    }
}

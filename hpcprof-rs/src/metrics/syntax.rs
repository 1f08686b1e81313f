//! The grammar of expressions over metrics:
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = operand { ("*" | "/") operand }
//! operand = { "-" } ( number | name | "(" sum ")" | ("min" | "max") "(" sum { "," sum } ")" )
//! name    = a known name, or any in quotes: 'cache-misses'
//! ```
//!
//! A hyphen belongs to a name if a metric has that name, else it is a minus: the longest known name is taken.
//! The result is in postfix order, so nothing that reads it recurses.

/// Most parentheses within one another.
const MOST_NESTED: usize = 64;

/// What to do with a stack of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operation {
    Number(f64),
    /// Push the value of the variable with this position.
    Variable(usize),
    Negate,
    Add,
    Subtract,
    Multiply,
    Divide,
    /// Replace the last values, of this number, by the least of them.
    Least(usize),
    /// Replace the last values, of this number, by the largest of them.
    Largest(usize),
}

/// An operation with its place in the text, in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) operation: Operation,
    pub(super) at: usize,
}

/// Why a text is no expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("expected {0}")]
    Expected(&'static str),
    #[error("no metric `{0}`")]
    UnknownName(String),
    #[error("the quote does not end")]
    OpenQuote,
    #[error("the number is too large")]
    TooLarge,
    #[error("more than {MOST_NESTED} parentheses within one another")]
    TooDeep,
    /// Units that do not go together, or no metric at all.
    #[error("{0}")]
    Meaningless(String),
}

/// What is wrong with a text, and where: the place in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub at: usize,
    pub fault: Fault,
}

type Parsed = Result<(), Problem>;

/// A text that is read from left to right.
struct Parser<'a> {
    text: &'a str,
    /// Where the next token begins, in bytes.
    at: usize,
    names: &'a [&'a str],
    nested: usize,
    steps: Vec<Step>,
}

/// Parses `text`, in which variables have these names, to operations in postfix order. An error has its place
/// in the text, in bytes.
pub(super) fn parse(text: &str, names: &[&str]) -> Result<Vec<Step>, Problem> {
    let mut parser = Parser { text, at: 0, names, nested: 0, steps: Vec::new() };
    if let Some(position) = names.iter().position(|name| *name == text) {
        parser.push(Operation::Variable(position), 0);
        return Ok(parser.steps);
    }
    parser.skip(0);
    parser.sum()?;
    match parser.rest() {
        "" => Ok(parser.steps),
        _ => Err(Problem { at: parser.at, fault: Fault::Expected("an operator") }),
    }
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves on by `length` bytes and the space behind them.
    fn skip(&mut self, length: usize) {
        let rest = &self.rest()[length..];
        let rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
    }

    /// Reads a sign, if it comes next.
    fn accept(&mut self, sign: char) -> bool {
        let comes = self.rest().starts_with(sign);
        if comes {
            self.skip(sign.len_utf8());
        }
        comes
    }

    fn push(&mut self, operation: Operation, at: usize) {
        self.steps.push(Step { operation, at });
    }

    fn fail(&self, fault: Fault) -> Parsed {
        Err(Problem { at: self.at, fault })
    }

    fn sum(&mut self) -> Parsed {
        let operators = [('+', Operation::Add), ('-', Operation::Subtract)];
        self.chain(Self::product, operators)
    }

    fn product(&mut self) -> Parsed {
        let operators = [('*', Operation::Multiply), ('/', Operation::Divide)];
        self.chain(Self::operand, operators)
    }

    /// Parts with operators between them, from left to right.
    fn chain(&mut self, part: fn(&mut Self) -> Parsed, operators: [(char, Operation); 2]) -> Parsed {
        part(self)?;
        loop {
            let at = self.at;
            let mut operators = operators.into_iter();
            let Some((_, operation)) = operators.find(|(sign, _)| self.accept(*sign)) else {
                return Ok(());
            };
            part(self)?;
            self.push(operation, at);
        }
    }

    fn operand(&mut self) -> Parsed {
        let at = self.at;
        let mut is_negative = false;
        while self.accept('-') {
            is_negative = !is_negative;
        }
        match self.rest().chars().next() {
            Some('(') => self.parentheses(Self::sum)?,
            Some(quote @ ('\'' | '"')) => self.quoted_name(quote)?,
            Some('.' | '0'..='9') => self.number()?,
            Some(c) if is_in_word(c) => self.call_or_name()?,
            _ => return self.fail(Fault::Expected("a metric, a number or `(`")),
        }
        if is_negative {
            self.push(Operation::Negate, at);
        }
        Ok(())
    }

    /// What `inner` reads between parentheses.
    fn parentheses(&mut self, inner: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.nested == MOST_NESTED {
            return self.fail(Fault::TooDeep);
        }
        self.nested += 1;
        self.accept('(');
        inner(self)?;
        if !self.accept(')') {
            return self.fail(Fault::Expected("an operator or `)`"));
        }
        self.nested -= 1;
        Ok(())
    }

    fn call_or_name(&mut self) -> Parsed {
        let text = self.rest();
        let length = text.find(|c| !is_in_word(c)).unwrap_or(text.len());
        let (word, after) = text.split_at(length);
        let operation = match word {
            "min" => Operation::Least,
            "max" => Operation::Largest,
            _ => return self.name(),
        };
        if !after.trim_start().starts_with('(') {
            return self.name();
        }
        let at = self.at;
        self.skip(length);
        self.parentheses(|parser| {
            parser.sum()?;
            let mut arguments = 1;
            while parser.accept(',') {
                parser.sum()?;
                arguments += 1;
            }
            // One alone is itself.
            if arguments > 1 {
                parser.push(operation(arguments), at);
            }
            Ok(())
        })
    }

    fn number(&mut self) -> Parsed {
        let text = self.rest();
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(text);
        let decimals = text[whole..].strip_prefix('.').map(digits);
        let mut end = whole + decimals.map_or(0, |decimals| 1 + decimals);
        if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits(unsigned) > 0 {
                end = text.len() - unsigned.len() + digits(unsigned);
            }
        }
        match text[..end].parse() {
            Ok(number) if f64::is_finite(number) => {
                self.push(Operation::Number(number), self.at);
                self.skip(end);
                Ok(())
            }
            Ok(_) => self.fail(Fault::TooLarge),
            Err(_) => self.fail(Fault::Expected("a number")),
        }
    }

    fn quoted_name(&mut self, quote: char) -> Parsed {
        match self.rest()[1..].split_once(quote) {
            Some((name, _)) => self.variable(name, name.len() + 2),
            None => self.fail(Fault::OpenQuote),
        }
    }

    /// The longest known name that ends at a hyphen, or where a name must end.
    fn name(&mut self) -> Parsed {
        let text = self.rest();
        let is_end = |c: char| c != '-' && !is_in_word(c);
        let text = &text[..text.find(is_end).unwrap_or(text.len())];
        let hyphens = text.rmatch_indices('-').map(|(at, _)| at);
        let mut ends = std::iter::once(text.len()).chain(hyphens);
        let known = ends.find(|end| self.names.contains(&&text[..*end]));
        let name = known.map_or_else(|| text.split('-').next().unwrap_or(text), |end| &text[..end]);
        self.variable(name, name.len())
    }

    /// Reads a variable, whose name takes `length` bytes of the text.
    fn variable(&mut self, name: &str, length: usize) -> Parsed {
        match self.names.iter().position(|known| *known == name) {
            Some(position) => {
                self.push(Operation::Variable(position), self.at);
                self.skip(length);
                Ok(())
            }
            None => self.fail(Fault::UnknownName(name.to_owned())),
        }
    }
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '@')
}

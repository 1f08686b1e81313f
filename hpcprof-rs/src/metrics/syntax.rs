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

use winnow::ascii::{digit0, digit1, multispace0};
use winnow::combinator::{alt, opt};
use winnow::error::ParserError;
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location, Stateful, Stream};
use winnow::token::one_of;

/// Most parentheses within one another.
const MOST_NESTED: usize = 64;

/// What to do with a stack of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operation {
    /// Push a number.
    Number(f64),
    /// Push the value of the variable with this position.
    Variable(usize),
    /// Replace the last.
    Negate,
    /// Replace the last two.
    Add,
    /// Replace the last two.
    Subtract,
    /// Replace the last two.
    Multiply,
    /// Replace the last two.
    Divide,
    /// Replace so many of the last by the least of them.
    Least(usize),
    /// Replace so many of the last by the largest of them.
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
    /// The text does not go on as it must.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A name that is not known.
    #[error("no metric `{0}`")]
    UnknownName(String),
    /// A quote without its end.
    #[error("the quote does not end")]
    OpenQuote,
    /// A number that is not finite.
    #[error("the number is too large")]
    TooLarge,
    /// Too many parentheses within one another.
    #[error("more than {MOST_NESTED} parentheses within one another")]
    TooDeep,
    /// Units that do not go together, or no metric at all.
    #[error("{0}")]
    Meaningless(String),
}

#[derive(Debug)]
struct State<'a> {
    names: &'a [&'a str],
    nested: usize,
}

type Input<'a> = Stateful<LocatingSlice<&'a str>, State<'a>>;
type Steps = Result<Vec<Step>, Fault>;

impl ParserError<Input<'_>> for Fault {
    type Inner = Fault;

    fn from_input(_: &Input<'_>) -> Fault {
        Fault::Expected("an operator")
    }

    fn is_backtrack(&self) -> bool {
        matches!(self, Fault::Expected(_))
    }

    fn into_inner(self) -> Result<Fault, Fault> {
        Ok(self)
    }
}

/// Parses `text`, in which variables have these names, to operations in postfix order. An error has its place
/// in the text, in bytes.
pub(super) fn parse(text: &str, names: &[&str]) -> Result<Vec<Step>, (usize, Fault)> {
    if let Some(position) = names.iter().position(|name| *name == text) {
        let operation = Operation::Variable(position);
        return Ok(vec![Step { operation, at: 0 }]);
    }
    let input = Input {
        input: LocatingSlice::new(text),
        state: State { names, nested: 0 },
    };
    let mut whole = |input: &mut Input<'_>| {
        multispace0.parse_next(input)?;
        sum(input)
    };
    whole
        .parse(input)
        .map_err(|error| (error.offset(), error.into_inner()))
}

fn sum(input: &mut Input<'_>) -> Steps {
    let operators = [('+', Operation::Add), ('-', Operation::Subtract)];
    chain(input, product, operators)
}

fn product(input: &mut Input<'_>) -> Steps {
    let operators = [('*', Operation::Multiply), ('/', Operation::Divide)];
    chain(input, operand, operators)
}

/// Parts with operators between them, from left to right.
fn chain(
    input: &mut Input<'_>,
    part: fn(&mut Input<'_>) -> Steps,
    operators: [(char, Operation); 2],
) -> Steps {
    let mut steps = part(input)?;
    loop {
        let at = input.current_token_start();
        let found = operators.into_iter().find(|(sign, _)| begins(input, *sign));
        let Some((sign, operation)) = found else {
            return Ok(steps);
        };
        symbol(input, sign)?;
        steps.extend(part(input)?);
        steps.push(Step { operation, at });
    }
}

fn operand(input: &mut Input<'_>) -> Steps {
    let at = input.current_token_start();
    let mut is_negative = false;
    while begins(input, '-') {
        symbol(input, '-')?;
        is_negative = !is_negative;
    }
    let mut steps = match input.peek_token() {
        Some('(') => parentheses(input, sum)?,
        Some(quote @ ('\'' | '"')) => quoted_name(input, quote)?,
        Some('.' | '0'..='9') => number(input)?,
        Some(c) if is_in_word(c) => call_or_name(input)?,
        _ => return Err(Fault::Expected("a metric, a number or `(`")),
    };
    if is_negative {
        let operation = Operation::Negate;
        steps.push(Step { operation, at });
    }
    Ok(steps)
}

/// What `inner` reads between parentheses.
fn parentheses(input: &mut Input<'_>, mut inner: impl FnMut(&mut Input<'_>) -> Steps) -> Steps {
    if input.state.nested == MOST_NESTED {
        return Err(Fault::TooDeep);
    }
    input.state.nested += 1;
    symbol(input, '(')?;
    let steps = inner(input)?;
    if !begins(input, ')') {
        return Err(Fault::Expected("an operator or `)`"));
    }
    symbol(input, ')')?;
    input.state.nested -= 1;
    Ok(steps)
}

fn call_or_name(input: &mut Input<'_>) -> Steps {
    let text = rest(input);
    let length = text.find(|c| !is_in_word(c)).unwrap_or(text.len());
    let (word, after) = text.split_at(length);
    let operation = match word {
        "min" => Operation::Least,
        "max" => Operation::Largest,
        _ => return name(input),
    };
    match after.trim_start().starts_with('(') {
        true => call(input, length, operation),
        false => name(input),
    }
}

fn call(input: &mut Input<'_>, length: usize, operation: fn(usize) -> Operation) -> Steps {
    let at = input.current_token_start();
    token(input, length)?;
    parentheses(input, |input| {
        let mut steps = sum(input)?;
        let mut arguments = 1;
        while begins(input, ',') {
            symbol(input, ',')?;
            steps.extend(sum(input)?);
            arguments += 1;
        }
        // One alone is itself.
        if arguments > 1 {
            let operation = operation(arguments);
            steps.push(Step { operation, at });
        }
        Ok(steps)
    })
}

fn number(input: &mut Input<'_>) -> Steps {
    let (at, start) = (input.current_token_start(), input.checkpoint());
    let mantissa = alt(((digit1, opt(('.', digit0))).void(), ('.', digit1).void()));
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let digits: Result<&str, Fault> = (mantissa, opt(exponent)).take().parse_next(input);
    let fault = match digits.map(str::parse) {
        Ok(Ok(number)) if f64::is_finite(number) => {
            multispace0.parse_next(input)?;
            let operation = Operation::Number(number);
            return Ok(vec![Step { operation, at }]);
        }
        Ok(Ok(_)) => Fault::TooLarge,
        _ => Fault::Expected("a number"),
    };
    input.reset(&start);
    Err(fault)
}

fn quoted_name(input: &mut Input<'_>, quote: char) -> Steps {
    let text = rest(input);
    let name = text[1..].split_once(quote).ok_or(Fault::OpenQuote)?.0;
    variable(input, name, name.len() + 2)
}

/// The longest known name that ends at a hyphen, or where a name must end.
fn name(input: &mut Input<'_>) -> Steps {
    let text = rest(input);
    let is_end = |c: char| c != '-' && !is_in_word(c);
    let text = &text[..text.find(is_end).unwrap_or(text.len())];
    let hyphens = text.rmatch_indices('-').map(|(at, _)| at);
    let mut ends = std::iter::once(text.len()).chain(hyphens);
    let known = ends.find(|end| input.state.names.contains(&&text[..*end]));
    let name = match known {
        Some(end) => &text[..end],
        None => text.split('-').next().unwrap_or(text),
    };
    variable(input, name, name.len())
}

/// A variable, whose name is so many bytes of the text.
fn variable(input: &mut Input<'_>, name: &str, length: usize) -> Steps {
    let at = input.current_token_start();
    let position = input.state.names.iter().position(|known| *known == name);
    let operation = match position {
        Some(position) => Operation::Variable(position),
        None => return Err(Fault::UnknownName(name.to_owned())),
    };
    token(input, length)?;
    Ok(vec![Step { operation, at }])
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '@')
}

/// The text that is not read yet.
fn rest<'a>(input: &Input<'a>) -> &'a str {
    input.as_ref().as_ref()
}

fn begins(input: &Input<'_>, sign: char) -> bool {
    input.peek_token() == Some(sign)
}

fn symbol(input: &mut Input<'_>, sign: char) -> Result<(), Fault> {
    token(input, sign.len_utf8())
}

/// Reads so many bytes, and the space behind them.
fn token(input: &mut Input<'_>, length: usize) -> Result<(), Fault> {
    input.next_slice(length);
    multispace0.void().parse_next(input)
}

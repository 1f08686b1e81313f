//! Expressions over metrics: what they mean, and their values.
//!
//! A value is worked out from a context's own sums, so an inclusive quotient is the quotient of inclusive
//! sums. Stored amounts are whole (nanoseconds, counts, bytes), and only the result is converted to its unit.

use crate::metrics::syntax::{self, Operation, Step};
use crate::metrics::unit::Unit;
use std::ops::{Div, Mul};

pub use crate::metrics::syntax::{Fault, Problem};

/// A metric that expressions may name.
#[derive(Clone, Copy, Debug)]
pub struct Variable<'a> {
    pub name: &'a str,
    pub unit: Unit,
    /// Whether values of several contexts add up.
    pub adds_up: bool,
}

/// An expression whose units go together.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    text: String,
    steps: Vec<Operation>,
    meaning: Meaning,
}

impl Problem {
    /// What is wrong where, for a user who knows `text`.
    pub fn describe(&self, text: &str) -> String {
        let (before, after) = text.split_at(self.at.min(text.len()));
        let fault = &self.fault;
        match after {
            "" => format!("{fault} at the end of `{text}`"),
            _ => {
                let character = before.chars().count() + 1;
                format!("{fault} at character {character} of `{text}`: `{after}`")
            }
        }
    }
}

/// How a value changes with all variables together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    Constant,
    /// As they do, so that values add up.
    Linear,
    Other,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Meaning {
    unit: Unit,
    growth: Growth,
}

impl Meaning {
    /// Of a sum or a difference; `None` where there is none.
    fn joined(self, other: Meaning) -> Option<Meaning> {
        let growth = match self.growth == other.growth {
            true => self.growth,
            false => Growth::Other,
        };
        (self.unit == other.unit).then_some(Meaning { growth, ..self })
    }
}

impl Mul for Meaning {
    type Output = Meaning;

    fn mul(self, other: Meaning) -> Meaning {
        Meaning {
            unit: self.unit * other.unit,
            growth: match (self.growth, other.growth) {
                (Growth::Constant, growth) | (growth, Growth::Constant) => growth,
                _ => Growth::Other,
            },
        }
    }
}

impl Div for Meaning {
    type Output = Meaning;

    fn div(self, other: Meaning) -> Meaning {
        Meaning {
            unit: self.unit / other.unit,
            growth: if other.growth == Growth::Constant { self.growth } else { Growth::Other },
        }
    }
}

impl Expression {
    /// Reads an expression over `variables`.
    ///
    /// # Errors
    ///
    /// The first place at which it is none, or its units do not go together.
    pub fn parse(text: &str, variables: &[Variable<'_>]) -> Result<Expression, Problem> {
        let expression = Self::parse_any(text, variables)?;
        match expression.is_constant() {
            true => Err(Problem { at: 0, fault: Fault::Meaningless("a number is no metric".to_owned()) }),
            false => Ok(expression),
        }
    }

    /// Reads an expression, which may be a number.
    pub fn parse_any(text: &str, variables: &[Variable<'_>]) -> Result<Expression, Problem> {
        let names: Vec<&str> = variables.iter().map(|v| v.name).collect();
        let steps = syntax::parse(text, &names)?;
        let meaning = meaning(&steps, variables)?;
        Ok(Expression {
            text: text.trim().to_owned(),
            steps: steps.into_iter().map(|step| step.operation).collect(),
            meaning,
        })
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn unit(&self) -> Unit {
        self.meaning.unit
    }

    pub fn adds_up(&self) -> bool {
        self.meaning.growth == Growth::Linear
    }

    /// Whether no variable changes it.
    pub fn is_constant(&self) -> bool {
        self.meaning.growth == Growth::Constant
    }

    /// The variables in it, by position.
    pub fn variables(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().filter_map(|step| match step {
            Operation::Variable(position) => Some(*position),
            _ => None,
        })
    }

    /// The variable, by position, that it consists of.
    pub fn variable(&self) -> Option<usize> {
        match self.steps.as_slice() {
            [Operation::Variable(position)] => Some(*position),
            _ => None,
        }
    }

    /// Its value in its unit, for stored amounts of the variables; `None` after a division by zero.
    pub fn value(&self, amount: impl Fn(usize) -> i64) -> Option<f64> {
        self.value_of(|variable| amount(variable) as f64)
    }

    /// The same for amounts that need not be whole.
    pub fn value_of(&self, amount: impl Fn(usize) -> f64) -> Option<f64> {
        let mut stack = Vec::with_capacity(8);
        for operation in &self.steps {
            apply(*operation, &mut stack, &amount);
        }
        let value = stack.pop()? / self.meaning.unit.stored();
        // Minus zero is zero.
        value.is_finite().then_some(value + 0.0)
    }
}

/// Carries out one operation. What is undefined is not a number, and so is all that follows from it.
fn apply(operation: Operation, stack: &mut Vec<f64>, amount: &impl Fn(usize) -> f64) {
    let mut last = || stack.pop().unwrap_or(f64::NAN);
    let value = match operation {
        Operation::Number(number) => number,
        Operation::Variable(position) => amount(position),
        Operation::Negate => -last(),
        Operation::Add => last() + last(),
        Operation::Multiply => last() * last(),
        Operation::Subtract => {
            let right = last();
            last() - right
        }
        Operation::Divide => match (last(), last()) {
            (0.0, _) => f64::NAN,
            (below, above) => above / below,
        },
        Operation::Least(arguments) => extreme(&mut last, arguments, f64::min),
        Operation::Largest(arguments) => extreme(&mut last, arguments, f64::max),
    };
    stack.push(value);
}

fn extreme(last: &mut impl FnMut() -> f64, arguments: usize, choose: fn(f64, f64) -> f64) -> f64 {
    let first = last();
    (1..arguments).fold(first, |chosen, _| match last() {
        value if value.is_nan() || chosen.is_nan() => f64::NAN,
        value => choose(chosen, value),
    })
}

fn meaning(steps: &[Step], variables: &[Variable<'_>]) -> Result<Meaning, Problem> {
    let mut stack: Vec<Meaning> = Vec::new();
    for step in steps {
        let problem = |text| Problem { at: step.at, fault: Fault::Meaningless(text) };
        let meaning = operation_meaning(step.operation, &mut stack, variables).map_err(problem)?;
        stack.push(meaning);
    }
    Ok(stack.pop().unwrap_or(NUMBER))
}

const NUMBER: Meaning = Meaning { unit: Unit::RATIO, growth: Growth::Constant };

fn operation_meaning(
    operation: Operation,
    stack: &mut Vec<Meaning>,
    variables: &[Variable<'_>],
) -> Result<Meaning, String> {
    let mut last = || stack.pop().unwrap_or(NUMBER);
    Ok(match operation {
        Operation::Number(_) => NUMBER,
        Operation::Variable(position) => {
            let variable = &variables[position];
            Meaning {
                unit: variable.unit,
                growth: if variable.adds_up { Growth::Linear } else { Growth::Other },
            }
        }
        Operation::Negate => last(),
        Operation::Add => {
            let (right, left) = (last(), last());
            let refused = || format!("cannot add {} and {}", left.unit, right.unit);
            left.joined(right).ok_or_else(refused)?
        }
        Operation::Subtract => {
            let (right, left) = (last(), last());
            let refused = || format!("cannot subtract {} from {}", right.unit, left.unit);
            left.joined(right).ok_or_else(refused)?
        }
        Operation::Multiply => last() * last(),
        Operation::Divide => {
            let (below, above) = (last(), last());
            above / below
        }
        Operation::Least(arguments) | Operation::Largest(arguments) => {
            let mut all = last();
            for _ in 1..arguments {
                let next = last();
                let refused = || format!("cannot compare {} and {}", next.unit, all.unit);
                all = next.joined(all).ok_or_else(refused)?;
            }
            match all.growth {
                Growth::Constant => all,
                Growth::Linear | Growth::Other => Meaning { growth: Growth::Other, ..all },
            }
        }
    })
}

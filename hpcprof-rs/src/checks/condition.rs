//! Conditions: `idleness/effort <= 0.2`, `work@app::solve <= 1.05 * baseline`.
//!
//! Both sides are [expressions](Expression) over the metrics of a run. `METRIC@PROCEDURE` is a metric in all
//! contexts of a procedure, with all that it calls; `span` and `wall` are those of a run. On the right side
//! `baseline` is the left side's value in another database, and a number has the left side's unit.

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::metrics::expression::{Expression, Fault, Variable};
use crate::metrics::unit::Unit;

/// The left side's value in the other database.
pub const BASELINE: &str = "baseline";
/// Quantities of a run as a whole, which no sample has.
pub const WHOLE: [&str; 2] = ["span", "wall"];
/// What compares both sides, and whether the left one is at most the right one.
const SIGNS: [(&str, bool); 4] = [("<=", true), (">=", false), ("<", true), (">", false)];

/// What a name in a condition stands for.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity {
    /// A metric, `effort`, or one of [`WHOLE`]; [`BASELINE`].
    pub name: String,
    /// The procedure in whose contexts it counts; `None`: all contexts.
    pub procedure: Option<String>,
    unit: Unit,
    adds_up: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// As the user wrote it.
    pub text: String,
    pub left: Expression,
    pub right: Expression,
    /// Whether the left side must not be the larger one; else not the smaller one.
    pub is_upper_limit: bool,
    /// What the variables of both sides stand for.
    pub quantities: Vec<Quantity>,
}

impl Condition {
    pub fn parse(text: &str, catalogue: &Catalogue) -> Result<Condition> {
        let Some((left, (sign, is_upper_limit), right)) = split(text) else {
            let problem = format!("`{text}` compares nothing: give a condition, as 'idleness/effort <= 0.2'");
            return Err(Error::Usage(problem));
        };
        let mut quantities: Vec<Quantity> = catalogue.variables().map(Quantity::from).collect();
        quantities.extend(WHOLE.map(|name| Quantity::of(name, Unit::SECONDS)));
        let left = read(left, &mut quantities, catalogue)?;
        if left.is_constant() {
            return Err(Error::Usage(format!("the left side of `{text}` is a number: begin with a metric")));
        }
        quantities.push(Quantity::of(BASELINE, left.unit()));
        let right = read(right, &mut quantities, catalogue)?;
        if !right.is_constant() && left.unit() != right.unit() {
            let (left, right) = (left.unit(), right.unit());
            return Err(Error::Usage(format!("cannot compare {left} {sign} {right} in `{text}`")));
        }
        Ok(Condition { text: text.trim().to_owned(), left, right, is_upper_limit, quantities })
    }

    pub fn has_baseline(&self) -> bool {
        let is_baseline = |at: usize| self.quantities[at].name == BASELINE;
        self.right.variables().any(is_baseline)
    }

    pub fn uses(&self, quantity: usize) -> bool {
        self.left.variables().chain(self.right.variables()).any(|at| at == quantity)
    }
}

impl Quantity {
    fn of(name: &str, unit: Unit) -> Quantity {
        Quantity { name: name.to_owned(), procedure: None, unit, adds_up: true }
    }

    fn written(&self) -> String {
        self.procedure
            .as_ref()
            .map_or_else(|| self.name.clone(), |procedure| format!("{}@{procedure}", self.name))
    }
}

impl From<Variable<'_>> for Quantity {
    fn from(known: Variable<'_>) -> Quantity {
        Quantity { adds_up: known.adds_up, ..Quantity::of(known.name, known.unit) }
    }
}

/// Both sides and the sign between them, which stands in no quotes.
fn split(text: &str) -> Option<(&str, (&'static str, bool), &str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None => {
                if let Some(found) = SIGNS.into_iter().find(|(sign, _)| text[at..].starts_with(sign)) {
                    return Some((&text[..at], found, &text[at + found.0.len()..]));
                }
            }
            Some(_) => {}
        }
    }
    None
}

/// Reads a side; a metric of a procedure becomes known when it occurs.
fn read(text: &str, quantities: &mut Vec<Quantity>, catalogue: &Catalogue) -> Result<Expression> {
    loop {
        let names: Vec<String> = quantities.iter().map(Quantity::written).collect();
        let variables: Vec<Variable<'_>> = names
            .iter()
            .zip(&*quantities)
            .map(|(name, of)| Variable { name, unit: of.unit, adds_up: of.adds_up })
            .collect();
        let problem = match Expression::parse_any(text, &variables) {
            Ok(expression) => return Ok(expression),
            Err(problem) => problem,
        };
        let new = match &problem.fault {
            Fault::UnknownName(name) => name.split_once('@').and_then(|(metric, procedure)| {
                let known = quantities.iter().find(|q| q.written() == metric && q.name != BASELINE)?;
                Some(Quantity { procedure: Some(procedure.to_owned()), ..known.clone() })
            }),
            _ => None,
        };
        match new {
            Some(quantity) => quantities.push(quantity),
            None => return Err(catalogue.no_expression(text, &problem, &variables)),
        }
    }
}

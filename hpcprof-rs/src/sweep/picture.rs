//! Draws a sweep as SVG: for each number of workers a bar of a run's core seconds, by what they went into.

use crate::error::xml;
use crate::render::numbers::seconds;
use crate::sweep::Step;
use crate::sweep::print::Sweep;
use std::io::{self, Write};

/// Width of the bar of the most core seconds, and of what is left of the bars.
const WIDTH: f64 = 620.0;
const LEFT: f64 = 170.0;
/// Height of a bar with the room below it.
const HEIGHT: usize = 34;
/// What the cores were used for, with its colour.
const PARTS: [(&str, &str); 5] = [
    ("as on the fewest workers", "#4c9a5b"),
    ("more work", "#3b6fb6"),
    ("idleness", "#e0b03c"),
    ("overhead", "#c8503c"),
    ("nobody works", "#9a9a9a"),
];

impl Sweep<'_> {
    pub fn picture(&self, out: &mut impl Write) -> io::Result<()> {
        let area = |step: &Step| f64::from(step.workers) * step.wall;
        let most = self.steps.iter().map(area).fold(1.0, f64::max);
        let bottom = 60 + HEIGHT * self.steps.len();
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{}\" \
             font-family=\"sans-serif\" \
             font-size=\"12\">\n<text x=\"10\" y=\"24\" font-size=\"16\">{}: core seconds of a run</text>",
            LEFT + WIDTH + 90.0,
            bottom + 30,
            xml(&self.program())
        )?;
        for (row, step) in self.steps.iter().enumerate() {
            let (y, of) = (45 + HEIGHT * row, &step.losses);
            let lost = [of.work, of.idleness, of.overhead, of.waiting].map(|time| time.max(0.0));
            let kept = (area(step) - lost.iter().sum::<f64>()).max(0.0);
            let label = format!("{} workers, {:.0} % efficient", step.workers, step.efficiency() * 100.0);
            writeln!(out, "<text x=\"10\" y=\"{}\">{label}</text>", y + 16)?;
            let mut x = LEFT;
            for (time, (name, colour)) in std::iter::once(kept).chain(lost).zip(PARTS) {
                let width = time / most * WIDTH;
                writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"24\" fill=\"{colour}\">\
                     <title>{name}: {} s</title></rect>",
                    seconds(time.round() as i64)
                )?;
                x += width;
            }
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{}\">{} s</text>",
                x + 6.0,
                y + 16,
                seconds(area(step) as i64)
            )?;
        }
        for (at, (name, colour)) in PARTS.iter().enumerate() {
            let x = 10 + at * 170;
            writeln!(out, "<rect x=\"{x}\" y=\"{bottom}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>")?;
            writeln!(out, "<text x=\"{}\" y=\"{}\">{name}</text>", x + 18, bottom + 10)?;
        }
        writeln!(out, "</svg>")
    }
}

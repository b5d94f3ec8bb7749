//! Line plots as SVG, by hand: two axes, a grid and a legend need no library.

use std::fmt::Write as _;
use std::path::Path;

use crate::outcome::Outcome;
use crate::report::number;

const WIDTH: f64 = 720.0;
/// What a digit is wide, about.
const LETTER: f64 = 7.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 90.0;
/// Told apart also by who does not see colours, together with the dashes.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const DASHES: [&str; 6] = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 4"];

/// A plot of lines through points. The horizontal axis is logarithmic, since what stands there grows by
/// factors; the vertical one begins at 0.
pub fn lines(title: &str, x_name: &str, y_name: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let x_min = points().map(|point| point.0).fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    let x_max = points().map(|point| point.0).fold(0.0, f64::max);
    let y_max = nice(points().map(|point| point.1).fold(0.0, f64::max));
    let across = |x: f64| {
        let span = (x_max / x_min).ln();
        let part = if span > 0.0 { (x / x_min).ln() / span } else { 0.5 };
        LEFT + part * (WIDTH - LEFT - RIGHT)
    };
    let down = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for step in 0..=4 {
        let y = y_max * f64::from(step) / 4.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1}\" text-anchor=\"end\">{1}</text>",
            WIDTH - RIGHT,
            number(y),
            down(y),
            LEFT - 8.0,
            down(y) + 4.0
        );
    }
    let mut xs: Vec<f64> = points().map(|point| point.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    for x in xs {
        let label = number(x);
        // A long one at the edge would be cut off.
        let sticks_out = across(x) + label.len() as f64 * LETTER / 2.0 > WIDTH;
        let (anchor, at) = if sticks_out { ("end", WIDTH - 2.0) } else { ("middle", across(x)) };
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{label}</text>",
            HEIGHT - BOTTOM + 18.0
        );
    }
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        HEIGHT - BOTTOM + 36.0,
        escaped(x_name),
        TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
        escaped(y_name)
    );
    for (at, (name, points)) in lines.iter().enumerate() {
        let (colour, dash) = (COLOURS[at % COLOURS.len()], DASHES[at % DASHES.len()]);
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), down(*y))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}</title></circle>",
                across(*x),
                down(*y),
                escaped(name),
                number(*y)
            );
        }
        let column = LEFT + (at % 3) as f64 * 205.0;
        let line = HEIGHT - 30.0 + (at / 3) as f64 * 18.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{column}\" x2=\"{}\" y1=\"{1}\" y2=\"{1}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/><text x=\"{2}\" y=\"{3}\">{4}</text>",
            column + 24.0,
            line,
            column + 30.0,
            line + 4.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

pub fn write(dir: &Path, name: &str, svg: &str) -> Outcome<()> {
    let path = dir.join(name);
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, svg));
    written.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The next of 1, 2, 4, 5, 10, ... that is not below.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 4.0, 5.0, 8.0]
        .into_iter()
        .map(|step| step * power)
        .find(|nice| *nice >= value)
        .unwrap_or(power * 10.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (43_000.0, 50_000.0), (99_000.0, 100_000.0)]
        {
            assert!((nice(value) - end).abs() < end * 1e-9, "{value}");
        }
    }

    #[test]
    fn every_point_is_inside_and_text_cannot_become_a_tag() {
        let svg =
            lines("a < b", "x", "y", &[("one", vec![(1.0, 0.0), (64.0, 9.0)]), ("two", vec![(256.0, 3.0)])]);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_long_number_at_the_edge_is_not_cut_off() {
        let ends = |x: f64| lines("t", "x", "y", &[("one", vec![(1.0, 1.0), (x, 1.0)])]);
        assert!(ends(256.0).contains("text-anchor=\"middle\">256<"));
        assert!(ends(2e7).contains("text-anchor=\"end\">20,000,000<"));
    }
}

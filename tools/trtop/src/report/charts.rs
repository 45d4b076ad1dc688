//! Charts as SVG.

use plotters::prelude::*;

/// Width and height of a chart.
const SIZE: (u32, u32) = (960, 300);

/// A line of a chart.
pub struct Line<'a> {
    /// What it is.
    pub name: String,
    /// Over time, s.
    pub points: &'a [(f64, f64)],
}

/// A chart of `lines` from 0 to `end` s, with a thin line at each of `marks`.
///
/// # Errors
/// As plotters says.
pub fn chart(unit: &str, lines: &[Line], end: f64, marks: &[f64]) -> Result<String, String> {
    let mut svg = String::new();
    let most = lines.iter().flat_map(|l| l.points).map(|p| p.1).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.08 } else { 1.0 };
    draw(&mut svg, unit, lines, (end.max(1e-3), top), marks).map_err(|e| e.to_string())?;
    Ok(svg)
}

/// The colour of the `i`th line, as HTML has it.
pub fn color(i: usize) -> String {
    let (r, g, b) = Palette99::pick(i).rgb();
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn draw(
    svg: &mut String,
    unit: &str,
    lines: &[Line],
    (end, top): (f64, f64),
    marks: &[f64],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().light_line_style(WHITE).x_desc("s").y_desc(unit).x_labels(12).y_labels(6).draw()?;
    for m in marks {
        chart.draw_series(LineSeries::new([(*m, 0.0), (*m, top)], RED.mix(0.5)))?;
    }
    for (i, l) in lines.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        // What was seen once or twice is no line to see.
        if l.points.len() < 3 {
            chart.draw_series(l.points.iter().map(|p| Circle::new(*p, 3, color.filled())))?;
        }
        chart.draw_series(LineSeries::new(l.points.iter().copied(), color.stroke_width(1)))?;
    }
    area.present()?;
    Ok(())
}

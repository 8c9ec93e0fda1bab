//! What the three parts of the table found, and the rows that become of it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use crate::bench::row::{Params, Row, quantile, sorted};
use crate::bench::runner::{Cell, Sample};

/// The record that all cells write.
pub(super) type SharedRecord = Rc<RefCell<Record>>;

/// How a row's value comes of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    Median,
    Sum,
}

impl Combine {
    fn of(self, samples: &[f64]) -> f64 {
        match self {
            Combine::Median => quantile(&sorted(samples), 0.5).unwrap_or(f64::NAN),
            Combine::Sum => samples.iter().sum(),
        }
    }
}

/// What one row is of.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) params: Params,
    pub(super) variant: &'static str,
    pub(super) unit: &'static str,
    pub(super) combine: Combine,
}

/// Names a figure of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FigureId(usize);

#[derive(Debug, Default)]
pub(super) struct Record {
    figures: Vec<(Figure, Vec<f64>, Vec<f64>)>,
}

impl Record {
    /// Makes room for a figure; rows come in this order.
    pub(super) fn figure(&mut self, figure: Figure) -> FigureId {
        self.figures.push((figure, Vec::new(), Vec::new()));
        FigureId(self.figures.len() - 1)
    }

    /// Takes down a sample.
    pub(super) fn add(&mut self, id: FigureId, value: f64, disturbed: bool) {
        let (_, calm, poor) = &mut self.figures[id.0];
        if disturbed { poor } else { calm }.push(value);
    }

    /// Returns the rows. Disturbed samples are shown only where there is nothing else.
    pub(super) fn rows(&self, table: &'static str) -> Vec<Row> {
        let with_samples = self.figures.iter().filter_map(|(figure, calm, poor)| {
            let samples = if calm.is_empty() { poor } else { calm };
            (!samples.is_empty()).then_some((figure, samples))
        });
        let row = |(figure, samples): (&Figure, &Vec<f64>)| Row {
            table,
            params: figure.params.clone(),
            variant: figure.variant,
            value: figure.combine.of(samples),
            unit: figure.unit,
            samples: samples.clone(),
        };
        with_samples.map(row).collect()
    }
}

/// Takes one sample: its value, and whether a thread was off its CPU.
pub(super) type Measure = Box<dyn FnMut() -> io::Result<(f64, bool)>>;

/// Makes the cell of one figure. Its first sample, which warms up, is not taken down.
pub(super) fn cell(record: &SharedRecord, figure: Figure, mut measure: Measure) -> Cell {
    let (params, variant) = (figure.params.clone(), figure.variant);
    let id = record.borrow_mut().figure(figure);
    let (record, mut warm) = (Rc::clone(record), false);
    let measure = move || {
        let (value, disturbed) = measure()?;
        if warm {
            record.borrow_mut().add(id, value, disturbed);
        }
        warm = true;
        Ok(Sample { values: Vec::new(), disturbed })
    };
    Cell { params, variant, measure: Box::new(measure) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Param;

    fn figure(variant: &'static str, combine: Combine) -> Figure {
        Figure { params: vec![("part", Param::Word("p"))], variant, unit: "ns", combine }
    }

    #[test]
    fn rows_are_what_was_taken_down() {
        let mut record = Record::default();
        let combines = [("a", Combine::Median), ("c", Combine::Sum)];
        let ids = combines.map(|(variant, combine)| record.figure(figure(variant, combine)));
        record.figure(figure("never", Combine::Sum));
        for id in ids {
            for value in [1.0, 2.0, 6.0] {
                record.add(id, value, false);
            }
            record.add(id, 1e9, true);
        }
        let poor = record.figure(figure("poor", Combine::Sum));
        record.add(poor, 7.0, true);
        let rows = record.rows("perf");
        let found: Vec<_> = rows.iter().map(|row| (row.variant, row.value)).collect();
        assert_eq!(found, [("a", 2.0), ("c", 9.0), ("poor", 7.0)]);
        assert_eq!(rows[0].samples, [1.0, 2.0, 6.0]);
    }

    #[test]
    fn the_sample_that_warms_up_is_not_taken_down() {
        let record = SharedRecord::default();
        let mut next = 0.0;
        let measure = move || {
            next += 1.0;
            Ok((next, false))
        };
        let mut cell = cell(&record, figure("a", Combine::Median), Box::new(measure));
        for _ in 0..3 {
            (cell.measure)().expect("measured");
        }
        assert_eq!(record.borrow().rows("perf")[0].samples, [2.0, 3.0]);
    }
}

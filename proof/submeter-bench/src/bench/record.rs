//! Collects the readings of samples, and makes rows from them.

use crate::row::{Name, Param, Params, Row, quantile, sorted};

/// One figure of one sample. Readings that differ only in their values form one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// The variant, if it is not that of the cell.
    variant: Option<&'static str>,
    /// What distinguishes it from other figures of its cell. It overrides a parameter of the cell
    /// with the same name.
    pub(crate) params: Params,
    pub(crate) unit: &'static str,
    combine: Combine,
    /// One value, or several if their distribution matters.
    pub(crate) values: Vec<f64>,
}

/// How a row's value is computed from its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Combine {
    Sum,
    Quantile(f64),
    Max,
}

impl Reading {
    /// Makes a reading whose row is the median of its samples.
    pub(crate) fn of(unit: &'static str, values: Vec<f64>) -> Reading {
        let combine = Combine::Quantile(0.5);
        Reading { variant: None, params: Params::default(), unit, combine, values }
    }

    /// Adds a parameter.
    pub(crate) fn with(mut self, name: &'static str, word: &'static str) -> Reading {
        self.params.set(name, Param::word(word));
        self
    }

    /// Assigns it to a variant other than its cell's.
    pub(crate) fn of_variant(mut self, variant: &'static str) -> Reading {
        self.variant = Some(variant);
        self
    }

    /// Returns the variant, if it is not that of the cell.
    pub(crate) fn variant(&self) -> Option<&'static str> {
        self.variant
    }

    /// Makes its row the sum of its samples.
    pub(crate) fn summed(mut self) -> Reading {
        self.combine = Combine::Sum;
        self
    }

    /// Makes its row the largest of its samples.
    pub(crate) fn largest(mut self) -> Reading {
        self.combine = Combine::Max;
        self
    }

    /// Makes its row the smallest sample that is not below `part` of all.
    pub(crate) fn quantile(mut self, part: f64) -> Reading {
        self.combine = Combine::Quantile(part);
        self
    }

    /// Returns whether it has this parameter.
    #[cfg(test)]
    pub(crate) fn has(&self, name: &'static str, word: &'static str) -> bool {
        self.params.get(name) == Some(word)
    }
}

impl Combine {
    fn of(self, samples: &[f64]) -> f64 {
        match self {
            Combine::Sum => samples.iter().sum(),
            Combine::Max => samples.iter().copied().fold(f64::MIN, f64::max),
            Combine::Quantile(part) => quantile(&sorted(samples), part).unwrap_or(f64::NAN),
        }
    }
}

/// All readings of all cells of a table.
#[derive(Debug, Default)]
pub(super) struct Record {
    groups: Vec<Group>,
}

/// Cells that are compared with each other.
#[derive(Debug)]
struct Group {
    params: Params,
    /// The variants of the cells in their order, then those that readings name.
    variants: Vec<&'static str>,
    /// In the order in which they were first read.
    figures: Vec<Figure>,
}

#[derive(Debug)]
struct Figure {
    params: Params,
    unit: &'static str,
    combine: Combine,
    /// By variant; the last ones may be missing.
    samples: Vec<Samples>,
}

/// Samples of one figure of one variant.
#[derive(Clone, Debug, Default)]
struct Samples {
    calm: Vec<f64>,
    disturbed: Vec<f64>,
}

impl Samples {
    /// Returns the samples to use: disturbed ones only if there are no others.
    fn best(&self) -> &[f64] {
        if self.are_poor() { &self.disturbed } else { &self.calm }
    }

    fn are_poor(&self) -> bool {
        self.calm.is_empty()
    }
}

impl Record {
    /// Registers the cells of a group and returns its number. Groups with the same parameters are
    /// merged, because a round may measure their cells more than once.
    pub(super) fn group(&mut self, params: &Params, variants: Vec<&'static str>) -> usize {
        let known = self.groups.iter().position(|group| group.params == *params);
        known.unwrap_or_else(|| {
            let figures = Vec::new();
            self.groups.push(Group { params: params.clone(), variants, figures });
            self.groups.len() - 1
        })
    }

    /// Adds a sample.
    pub(super) fn add(
        &mut self,
        group: usize,
        variant: &'static str,
        readings: Vec<Reading>,
        disturbed: bool,
    ) {
        let Group { variants, figures, .. } = &mut self.groups[group];
        for Reading { variant: own, params, unit, combine, values } in readings {
            let variant = own.unwrap_or(variant);
            let place = variants.iter().position(|v| *v == variant).unwrap_or_else(|| {
                variants.push(variant);
                variants.len() - 1
            });
            let known = figures.iter().position(|f| f.params == params && f.unit == unit);
            let known = known.unwrap_or_else(|| {
                figures.push(Figure { params, unit, combine, samples: Vec::new() });
                figures.len() - 1
            });
            let samples = &mut figures[known].samples;
            if samples.len() <= place {
                samples.resize(place + 1, Samples::default());
            }
            let Samples { calm, disturbed: others } = &mut samples[place];
            if disturbed { others } else { calm }.extend(values);
        }
    }

    /// Returns the rows, with all variants of a figure next to each other, and the indices of rows
    /// that have only disturbed samples.
    pub(super) fn rows(&self, table: &'static str) -> (Vec<Row>, Vec<usize>) {
        let (mut rows, mut poor) = (Vec::new(), Vec::new());
        for group in &self.groups {
            for figure in ordered(&group.figures) {
                for (variant, found) in group.variants.iter().zip(&figure.samples) {
                    let samples = found.best().to_vec();
                    if samples.is_empty() {
                        continue;
                    }
                    if found.are_poor() {
                        poor.push(rows.len());
                    }
                    let mut params = group.params.clone();
                    for (name, value) in &figure.params.0 {
                        params.set(name.clone(), value.clone());
                    }
                    let value = figure.combine.of(&samples);
                    let [table, variant, unit] = [table, variant, figure.unit].map(Name::from);
                    rows.push(Row { table, params, variant, value, unit, samples });
                }
            }
        }
        (rows, poor)
    }
}

/// Orders figures so that those of one kind follow each other, even if the first variant that was
/// read lacks some of them. Figures that differ only in their last parameter, such as a quantile,
/// are of one kind.
fn ordered(figures: &[Figure]) -> Vec<&Figure> {
    fn kind(figure: &Figure) -> (&[(Name, Param)], Option<&Name>, &str) {
        let params = &figure.params.0;
        let kinds = if params.len() > 1 { params.len() - 1 } else { params.len() };
        (&params[..kinds], params.last().map(|(name, _)| name), figure.unit)
    }
    let first = |of: &Figure| figures.iter().position(|figure| kind(figure) == kind(of));
    let mut ordered: Vec<&Figure> = figures.iter().collect();
    ordered.sort_by_cached_key(|figure| first(figure));
    ordered
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

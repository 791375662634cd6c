//! Finding a column of a schema by its name.

use arrow::datatypes::Schema;

use crate::error::{ConfigError, nearest_name};

/// Index of the column `name`, which must be there once; `role` is what it is asked for, in the error.
pub(crate) fn find_column(schema: &Schema, name: &str, role: &str) -> Result<usize, ConfigError> {
    let mut found = schema
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name() == name)
        .map(|(i, _)| i);
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(_)) => Err(ConfigError::AmbiguousColumn { name: name.to_owned() }),
        (None, _) => {
            let available =
                schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            Err(ConfigError::UnknownColumn {
                role: role.to_owned(),
                name: name.to_owned(),
                nearest: nearest_name(name, &available),
                available,
            })
        }
    }
}

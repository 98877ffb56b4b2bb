//! The parameters of a statement, each with its type, so that the server isn't asked for them.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use piton_store::StoreError;

/// A value that can be a parameter.
pub(crate) trait Param: ToSql + Sync + Send {
    /// Its type.
    const TYPE: Type;
}

macro_rules! param {
    ($($rust:ty = $type:ident),* $(,)?) => { $(impl Param for $rust { const TYPE: Type = Type::$type; })* };
}

param!(
    i64 = INT8,
    i32 = INT4,
    bool = BOOL,
    String = TEXT,
    &str = TEXT,
    &[u8] = BYTEA,
    Vec<u8> = BYTEA,
    Option<i32> = INT4,
    Option<i64> = INT8,
    Option<String> = TEXT,
    Vec<i64> = INT8_ARRAY,
    Vec<i32> = INT4_ARRAY,
    Vec<&[u8]> = BYTEA_ARRAY,
    Vec<Vec<u8>> = BYTEA_ARRAY,
    Vec<String> = TEXT_ARRAY,
    Option<Vec<String>> = TEXT_ARRAY,
);

/// The parameters of one statement, in order.
#[derive(Default)]
pub(crate) struct Params<'a>(Vec<(Box<dyn ToSql + Sync + Send + 'a>, Type)>);

impl<'a> Params<'a> {
    /// Adds one, and gives the name by which the statement calls it.
    pub(crate) fn add<P: Param + 'a>(&mut self, value: P) -> String {
        self.0.push((Box::new(value), P::TYPE));
        format!("${}", self.0.len())
    }

    /// The same, for a statement whose parameters are numbered by hand.
    pub(crate) fn with<P: Param + 'a>(mut self, value: P) -> Self {
        self.add(value);
        self
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// As the driver wants them.
    pub(crate) fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.0.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect()
    }
}

/// A column of a row. What can't be read as what Piton writes is damage.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| StoreError::corrupt(format!("column {column} of an answer"), error.to_string()))
}

/// A number that is never negative.
pub(crate) fn count(row: &Row, column: usize) -> Result<u64, StoreError> {
    get::<i64>(row, column).map(i64::cast_unsigned)
}

/// A hash or an id.
pub(crate) fn id32(row: &Row, column: usize) -> Result<[u8; 32], StoreError> {
    get::<&[u8]>(row, column)?
        .try_into()
        .map_err(|_| StoreError::corrupt(format!("column {column} of an answer"), "it isn't 32 bytes long"))
}

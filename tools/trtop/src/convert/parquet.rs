//! Parquet: the CSV's rows with the columns' types. Counters are unsigned 64-bit; lists and maps are JSON text.

use super::{Out, Target};
use crate::csv;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::Value;
use std::io::{self, Write};
use std::sync::Arc;
use telereduce::shm::snapshot::{SegmentJson, Snapshot};

/// Rows that are written together.
const ROWS: usize = 20_000;
const TEXT: [&str; 22] = [
    "kind",
    "host",
    "command",
    "device",
    "type",
    "state",
    "peer",
    "gid",
    "ip",
    "local",
    "last_error",
    "opcodes",
    "errors",
    "recv_errors",
    "latency_post_to_poll.buckets",
    "multipath.single_path",
    "multipath.large_passed",
    "status",
    "job",
    "source",
    "nccl.direction",
    "nccl.func",
];
const TRUTH: [&str; 3] = ["alive", "live", "opaque"];

/// A column's cells; where a row has none, its level is 0.
struct Column {
    name: String,
    levels: Vec<i16>,
    cells: Cells,
}

enum Cells {
    Text(Vec<ByteArray>),
    Truth(Vec<bool>),
    Number(Vec<i64>),
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Cells::Text(t) => t.len(),
            Cells::Truth(t) => t.len(),
            Cells::Number(t) => t.len(),
        }
    }
}

impl Column {
    fn new(name: &str) -> Column {
        let cells = match name {
            n if TEXT.contains(&n) => Cells::Text(Vec::new()),
            n if TRUTH.contains(&n) => Cells::Truth(Vec::new()),
            _ => Cells::Number(Vec::new()),
        };
        Column { name: name.into(), levels: Vec::new(), cells }
    }

    fn schema(&self) -> parquet::errors::Result<Type> {
        let (physical, logical) = match self.cells {
            Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Cells::Truth(_) => (Physical::BOOLEAN, None),
            Cells::Number(_) => (Physical::INT64, Some(LogicalType::Integer { bit_width: 64, is_signed: false })),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
    }

    fn push(&mut self, v: Option<&Value>) {
        let cells = self.cells.len();
        match (&mut self.cells, v) {
            (Cells::Text(t), Some(Value::String(s))) => t.push(s.as_str().into()),
            (Cells::Text(t), Some(v @ (Value::Object(_) | Value::Array(_)))) => t.push(v.to_string().as_str().into()),
            (Cells::Truth(t), Some(Value::Bool(b))) => t.push(*b),
            // The column says that the bits are an unsigned number's.
            (Cells::Number(t), Some(v)) => t.extend(v.as_u64().map(|n| n as i64)),
            _ => {}
        }
        self.levels.push(i16::from(self.cells.len() > cells));
    }
}

/// A file that is written.
pub struct Table {
    writer: Option<SerializedFileWriter<Out>>,
    columns: Vec<Column>,
}

impl Table {
    /// An empty one.
    pub fn new(to: Out) -> io::Result<Table> {
        let header = csv::header(true);
        let columns: Vec<Column> = header.trim_end().split(',').map(Column::new).collect();
        let fields = columns.iter().map(|c| c.schema().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("telereduce").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by(format!("trtop {}", env!("CARGO_PKG_VERSION")));
        let writer = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Table { writer: Some(writer), columns })
    }

    fn row(&mut self, kind: &str, time_ns: u64, g: &SegmentJson, row: &Value) {
        let own = |name: &str| match name {
            "kind" => Some(kind.into()),
            "time_ns" => Some(time_ns.into()),
            "pid" => Some(g.pid.into()),
            "uid" => Some(g.uid.into()),
            "host" => Some(g.host.as_str().into()),
            "rank" => Some(g.rank.into()),
            "world_size" => Some(g.world_size.into()),
            "job" => Some(g.job.as_deref().into()),
            "alive" => Some(g.alive.into()),
            "command" => Some(g.command.as_str().into()),
            _ => None::<Value>,
        };
        for c in &mut self.columns {
            match own(&c.name) {
                Some(v) => c.push(Some(&v)),
                None => c.push(csv::find(row, &c.name)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut group = writer.next_row_group()?;
        for c in &mut self.columns {
            let Some(mut to) = group.next_column()? else { break };
            match &mut c.cells {
                Cells::Text(t) => {
                    to.typed::<ByteArrayType>().write_batch(t, Some(&c.levels), None)?;
                    t.clear();
                }
                Cells::Truth(t) => {
                    to.typed::<BoolType>().write_batch(t, Some(&c.levels), None)?;
                    t.clear();
                }
                Cells::Number(t) => {
                    to.typed::<Int64Type>().write_batch(t, Some(&c.levels), None)?;
                    t.clear();
                }
            }
            to.close()?;
            c.levels.clear();
        }
        group.close()?;
        Ok(())
    }
}

impl Target for Table {
    fn frame(&mut self, s: &Snapshot) -> io::Result<()> {
        csv::each_row(s, true, |kind, g, row| self.row(kind, s.time_ns, g, row));
        if self.columns[0].levels.len() >= ROWS { self.flush() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        match self.writer.take() {
            Some(w) => Ok(w.into_inner()?.flush()?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_with_a_type_is_one_of_the_csv() {
        let header = csv::header(true);
        let names: Vec<&str> = header.trim_end().split(',').collect();
        for n in TEXT.iter().chain(&TRUTH) {
            assert!(names.contains(n), "{n}");
        }
    }
}

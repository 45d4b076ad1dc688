//! The preloaded library over the software device (`tools/nullverbs`), with the programs of `tests/programs`: one file
//! per promise. `make test` builds all of these before; a test that misses one says so.

mod exact;
mod exact_special;

//! The structs that the library reads and patches have the same layout in Rust as in the C headers of this machine.

use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `tests/shim/NAME.c` into `dir`.
pub fn compile(name: &str, dir: &Path, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shim/{name}.c"));
    let program = dir.join(name);
    let out = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror"])
        .arg(&source)
        .args(libraries)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler: run `make deps`");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

macro_rules! layouts {
    ($($type:ident { $($($field:ident).+),* })*) => {{
        let (mut c, mut rust) = (String::new(), String::new());
        $(
            let name = stringify!($type);
            c += &format!("S({name})\n");
            rust += &format!("{name} {}\n", size_of::<rdma_sys::$type>());
            $(
                let field = stringify!($($field).+);
                c += &format!("F({name}, {field})\n");
                rust += &format!("{name}.{field} {}\n", offset_of!(rdma_sys::$type, $($field).+));
            )*
        )*
        (c, rust)
    }};
}

#[test]
fn structs_are_as_the_c_headers_say() {
    let (fields, rust) = layouts! {
        ibv_context { device, ops, ops.poll_cq, ops.post_srq_recv, ops.post_send, ops.post_recv, cmd_fd, abi_compat }
        verbs_context { create_qp_ex, create_cq_ex, create_srq_ex, sz, context }
        ibv_device { name, dev_name }
        ibv_qp { context, pd, send_cq, recv_cq, srq, qp_num, state, qp_type }
        ibv_cq { context, cqe }
        ibv_qp_ex { qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
            wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso,
            wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort,
            wr_atomic_write }
        ibv_cq_ex { context, cqe, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err,
            read_byte_len, read_qp_num }
        ibv_data_buf { addr, length }
        ibv_srq { context }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, wr }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_sge { addr, length, lkey }
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, qp_num, src_qp, wc_flags }
        ibv_qp_attr { qp_state, dest_qp_num, cap, ah_attr, ah_attr.grh.dgid, ah_attr.dlid, ah_attr.is_global, port_num }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_init_attr_ex { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, send_ops_flags }
        ibv_cq_init_attr_ex { cqe, wc_flags, comp_mask, flags }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { attr }
        ibv_srq_init_attr_ex { attr, comp_mask, srq_type, pd }
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("fields.h"), fields).expect("a new file");
    let include = format!("-I{}", dir.path().display());
    let program = compile("layouts", dir.path(), &[&include]);
    let out = Command::new(program).output().expect("the program just built");
    let c = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(c.lines().count() > 80);
    for (c, rust) in c.lines().zip(rust.lines()) {
        assert_eq!(c, rust, "C against Rust");
    }
    assert_eq!(c.lines().count(), rust.lines().count());
}

/// An `ibv_cq_ex` is used as an `ibv_cq`, and an extended context is told by the field that the headers look at.
#[test]
fn extended_objects_start_as_plain_ones() {
    assert_eq!(offset_of!(rdma_sys::ibv_cq_ex, context), offset_of!(rdma_sys::ibv_cq, context));
    assert_eq!(offset_of!(rdma_sys::ibv_cq_ex, cqe), offset_of!(rdma_sys::ibv_cq, cqe));
    let end_of_size = offset_of!(rdma_sys::verbs_context, sz) + size_of::<usize>();
    assert_eq!(end_of_size, offset_of!(rdma_sys::verbs_context, context));
}

//! What the library exports, needs, and is linked with.

use std::collections::BTreeSet;
use std::process::Command;
use telereduce_tests::run::{root, shim};

fn output(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).arg(shim()).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}; run `make deps`, which installs binutils"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Names without their versions.
fn symbols(kind: &str) -> BTreeSet<String> {
    let names = output("nm", &["-D", "--format=posix", kind]);
    names.lines().map(|l| l.split([' ', '@']).next().unwrap_or_default().to_string()).collect()
}

#[test]
fn exported_is_what_the_list_in_lib_rs_says() {
    let source = std::fs::read_to_string(root().join("shim/lib.rs")).expect("the list of hooks");
    let list = source.split_once("\nexport! {").and_then(|(_, l)| l.split_once("\n}")).expect("the list").0;
    let listed: BTreeSet<String> = list.lines().filter_map(|l| l.trim().split_once('(')).map(|x| x.0.into()).collect();
    assert!(listed.contains("ibv_open_device") && listed.len() >= 11);
    let others = ["dlsym", "dlvsym", "_exit", "_Exit", "ncclProfiler_v5", "ncclProfiler_v4"].map(String::from);
    assert_eq!(symbols("--defined-only"), listed.into_iter().chain(others).collect());
}

#[test]
fn no_symbol_of_libibverbs_is_needed() {
    let needed = symbols("--undefined-only");
    assert!(needed.contains("dlopen") && !needed.contains("dlsym") && !needed.contains("dlvsym"));
    let verbs = ["ibv_", "rdma_", "verbs_", "mlx5", "_ibv", "nccl"];
    let bad: Vec<_> = needed.iter().filter(|n| verbs.iter().any(|v| n.starts_with(v))).collect();
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn linked_with_the_c_library_only() {
    let dynamic = output("readelf", &["-dW"]);
    let needed: Vec<&str> = (dynamic.lines().filter(|l| l.contains("(NEEDED)")))
        .map(|l| l.split(['[', ']']).nth(1).expect("a name in brackets"))
        .collect();
    assert!(!needed.is_empty());
    for n in needed {
        let allowed = ["libc.so", "libgcc_s.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux"];
        assert!(allowed.iter().any(|a| n.starts_with(a)), "{n}");
    }
    assert!(!dynamic.contains("(TEXTREL)") && !dynamic.contains("RUNPATH") && !dynamic.contains("RPATH"));
}

//! Generates the messages and the gRPC stubs from `proto/`; needs `protoc`.

fn main() -> std::io::Result<()> {
    tonic_prost_build::configure()
        .bytes(".")
        // Sorted, so that equal cards are equal bytes.
        .btree_map(".")
        .compile_protos(&["proto/continuum/push/v1/push.proto"], &["proto"])
}

/tmp/real-uuf2y_82/place/app/target/debug/deps/leaf_crate-21f467a07ef2cb1a.d: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/leaf-crate-1.4.2/src/lib.rs

/tmp/real-uuf2y_82/place/app/target/debug/deps/libleaf_crate-21f467a07ef2cb1a.rlib: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/leaf-crate-1.4.2/src/lib.rs

/tmp/real-uuf2y_82/place/app/target/debug/deps/libleaf_crate-21f467a07ef2cb1a.rmeta: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/leaf-crate-1.4.2/src/lib.rs

/tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/leaf-crate-1.4.2/src/lib.rs:

/tmp/real-uuf2y_82/place/app/target/debug/deps/top_crate-c9ad639f5c19ed57.d: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/top-crate-0.2.0-rc.1/src/lib.rs

/tmp/real-uuf2y_82/place/app/target/debug/deps/libtop_crate-c9ad639f5c19ed57.rlib: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/top-crate-0.2.0-rc.1/src/lib.rs

/tmp/real-uuf2y_82/place/app/target/debug/deps/libtop_crate-c9ad639f5c19ed57.rmeta: /tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/top-crate-0.2.0-rc.1/src/lib.rs

/tmp/real-uuf2y_82/place/.cargo/registry/src/127.0.0.1-beab0a7c71038449/top-crate-0.2.0-rc.1/src/lib.rs:

/tmp/real-uuf2y_82/place/app/target/debug/deps/work-a280e9ba9369a129.d: src/main.rs

/tmp/real-uuf2y_82/place/app/target/debug/deps/work-a280e9ba9369a129: src/main.rs

src/main.rs:

//! The environment variable that sets the default number of workers. One test, for it runs
//! itself again under several values.

use std::process::Command;

use work_stealing_rt::ThreadPoolBuilder;

const VARIABLE: &str = "WORK_STEALING_RT_NUM_THREADS";
const INNER: &str = "WSRT_TEST_INNER";

#[test]
fn the_variable_sets_the_default_and_nonsense_is_refused() {
    if std::env::var_os(INNER).is_some() {
        match ThreadPoolBuilder::new().build() {
            Ok(pool) => println!("threads={}", pool.current_num_threads()),
            Err(error) => println!("error: {error}"),
        }
        return;
    }
    let with = |value: &str| {
        let output = Command::new(std::env::current_exe().expect("a path"))
            .arg("--nocapture")
            .env(INNER, "1")
            .env(VARIABLE, value)
            .output()
            .expect("the test program runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(with("5").contains("threads=5"));
    assert!(with(" 7 ").contains("threads=7"));
    assert!(with("0").contains(&format!("threads={available}")));
    for nonsense in ["many", "-1", ""] {
        let text = with(nonsense);
        assert!(
            text.contains("set it to a number of threads, or unset it"),
            "{text}"
        );
    }
}

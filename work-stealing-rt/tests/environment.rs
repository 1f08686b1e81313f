//! The environment variables that set the default number of workers. One test, for it runs
//! itself again under several values.

use std::process::Command;

use work_stealing_rt::ThreadPoolBuilder;

const VARIABLE: &str = "WORK_STEALING_RT_NUM_THREADS";
const RAYON: &str = "RAYON_NUM_THREADS";
const OLD_RAYON: &str = "RAYON_RS_NUM_CPUS";
const INNER: &str = "WSRT_TEST_INNER";

#[test]
fn the_variables_set_the_default() {
    if std::env::var_os(INNER).is_some() {
        match ThreadPoolBuilder::new().build() {
            Ok(pool) => println!("threads={}", pool.current_num_threads()),
            Err(error) => println!("error: {error}"),
        }
        return;
    }
    let with = |variables: &[(&str, &str)]| {
        let output = Command::new(std::env::current_exe().expect("a path"))
            .arg("--nocapture")
            .env(INNER, "1")
            .env_remove(VARIABLE)
            .env_remove(RAYON)
            .env_remove(OLD_RAYON)
            .envs(variables.iter().copied())
            .output()
            .expect("the test program runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = |variables: &[(&str, &str)], count: usize| {
        let text = with(variables);
        assert!(text.contains(&format!("threads={count}")), "{variables:?}: {text}");
    };
    threads(&[(VARIABLE, "5")], 5);
    threads(&[(VARIABLE, " 7 ")], 7);
    threads(&[(VARIABLE, "0")], available);
    threads(&[(VARIABLE, "5"), (RAYON, "6")], 5);
    for nonsense in ["many", "-1", ""] {
        let text = with(&[(VARIABLE, nonsense)]);
        assert!(text.contains("set it to a number of threads, or unset it"), "{text}");
    }
    // As rayon has it: nonsense counts as unset, the newer name comes first.
    threads(&[(RAYON, "6")], 6);
    threads(&[(RAYON, "6"), (OLD_RAYON, "3")], 6);
    threads(&[(RAYON, "0"), (OLD_RAYON, "3")], available);
    threads(&[(RAYON, "many"), (OLD_RAYON, "3")], 3);
    threads(&[(RAYON, "many")], available);
}

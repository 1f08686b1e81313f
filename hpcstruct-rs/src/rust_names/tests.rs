//! What is told of symbols, beside the full demangler.

use super::*;
use object::{Object as _, ObjectSymbol as _};

/// The same by the full demangler.
fn full(symbol: &str) -> Option<String> {
    let name = format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?);
    Some(name.replace("{{", "{").replace("}}", "}"))
}

/// Whether the symbol is told here; what is told must be right.
fn check(symbol: &str) -> bool {
    let told = readable(symbol);
    if told.is_some() {
        assert_eq!(told, full(symbol), "{symbol}");
    }
    told.is_some()
}

const SYMBOLS: [&str; 13] = [
    "_ZN1a5inner14Thing$LT$T$GT$7gen_act17he834c3ff8db8072cE",
    "_ZN60_$LT$a..inner..Thing$LT$u64$GT$$u20$as$u20$a..inner..Act$GT$3act17hd72f1efd3e6f9327E",
    "_ZN1a4main28_$u7b$$u7b$closure$u7d$$u7d$17h97bf2994912707daE",
    "_ZN35Bar$LT$$u5b$u32$u3b$$u20$4$u5d$$GT$17h97bf2994912707daE",
    "_RINvCs6xxl1lAjzDf_1a3runNCNvB2_4main0EB2_",
    "_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate",
    "_RINvNtC3std3mem8align_ofjdE",
    "_RINtC8arrayvec8ArrayVechKj7b_E",
    "_RMC0INtC8arrayvec8ArrayVechKj7b_Kb1_Kin5_KpE",
    "_RNvXs5_C1aINtC1a1TRL_hFG_UKCRL0_hQTjbEEuDG_INtC1b1WhEp4ItemjEL_ENtC1b1X1f",
    "_RNSC1a4name",
    "_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_",
    "_RNvYNtC1a1TINtC1b1UAhj8_OSPzE1f",
];

#[test]
fn usual_symbols_are_what_the_full_demangler_says() {
    for symbol in SYMBOLS {
        assert!(check(symbol), "{symbol}");
    }
    assert_eq!(readable(SYMBOLS[2]).as_deref(), Some("a::main::{closure}"));
    assert_eq!(
        readable("_RNCNvC1a4mains_0").as_deref(),
        Some("a::main::{closure#1}")
    );
}

#[test]
fn most_symbols_of_a_program_are_told() {
    let path = std::env::current_exe().expect("a path");
    let data = std::fs::read(path).expect("readable");
    let elf = object::File::parse(&*data).expect("an ELF file");
    let (mut told, mut all) = (0, 0);
    for symbol in elf.symbols() {
        let name = symbol.name().unwrap_or_default();
        let name = name.split(".llvm.").next().unwrap_or(name);
        if full(name).is_some() {
            told += u32::from(check(name));
            all += 1;
        }
    }
    assert!(all > 1000 && told * 100 > all * 97, "{told} of {all}");
}

#[test]
fn damaged_symbols_are_left_or_right() {
    for symbol in SYMBOLS {
        for at in 0..symbol.len() {
            check(&symbol[..at]);
            for byte in b"09_aBCEFGIKLNMRSTXYpsu$.{}\x01" {
                let mut damaged = symbol.as_bytes().to_vec();
                damaged[at] = *byte;
                let damaged = String::from_utf8(damaged).expect("ASCII");
                check(&damaged);
                let mut longer = symbol.to_owned();
                longer.insert(at, char::from(*byte));
                check(&longer);
            }
        }
    }
    let deep = format!("_R{}", "NvINv".repeat(5000));
    assert_eq!(readable(&deep), None);
    assert!(check(&repeating(3)));
    assert_eq!(readable(&repeating(40)), None);
}

/// Each tuple repeats the one before it twice.
fn repeating(levels: usize) -> String {
    let mut symbol = "_RINvC1a1fTccE".to_owned();
    let mut before = 8;
    for _ in 0..levels {
        let here = symbol.len() - 2;
        let back = digits_62(before - 1);
        symbol.push_str(&format!("TB{back}_B{back}_E"));
        before = here;
    }
    symbol.push('E');
    symbol
}

fn digits_62(mut value: usize) -> String {
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut out = Vec::new();
    loop {
        out.insert(0, digits[value % 62]);
        value /= 62;
        if value == 0 {
            return String::from_utf8(out).expect("ASCII");
        }
    }
}

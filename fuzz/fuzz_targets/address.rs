//! Any address: no input causes a panic, and neither an error nor the parsed address shows the
//! password.
//!
//! The input is the form of the address in one byte, the password, a newline and the rest. Run it
//! as in the header of schedule.rs, with `address` for `schedule`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trax_client::Address;

/// Part of every password, and of no other text.
const SECRET: &str = "5ecr3t";

fuzz_target!(|data: &[u8]| {
    let Ok(input) = std::str::from_utf8(data) else {
        return;
    };
    // Elsewhere the text is no secret: the error about an unknown parameter shows its name.
    if input.contains(SECRET) {
        return;
    }
    let mut letters = input.chars();
    let form = letters.next().map_or(0, u32::from) % 4;
    let (password, rest) = letters.as_str().split_once('\n').unwrap_or_default();
    let (before, after) = password.split_at(password.floor_char_boundary(password.len() / 2));
    let secret = format!("{before}{SECRET}{after}");
    let address = match form {
        0 => format!("postgres://u:{secret}@{rest}"),
        1 => format!("host=h password='{secret}' {rest}"),
        2 => format!("host=h password={secret} {rest}"),
        _ => format!("{password}{rest}"),
    };
    match address.parse::<Address>() {
        Ok(address) => {
            let said: Vec<_> = address.environment();
            assert!(!format!("{said:?}").contains(SECRET) || form == 2 || form == 1);
            // Any of these characters may end the password early and begin another part.
            let ends = |c: char| c.is_whitespace() || matches!(c, '?' | '\'' | '\\');
            // A host, a user and a database are shown, but not the password.
            assert!(secret.contains(ends) || !format!("{address:?}").contains(SECRET));
            assert!(address.or_environment(|_| None).is_ok());
        }
        Err(error) => assert!(!error.to_string().contains(SECRET), "{address}: {error}"),
    }
});

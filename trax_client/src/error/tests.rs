//! Tests of the classes of errors, and of their texts.

use super::*;

fn sorted(code: &str) -> Error {
    let report = Report {
        sqlstate: code.to_owned(),
        message: "m".to_owned(),
        detail: None,
        hint: None,
    };
    Error::from_report(&SqlState::from_code(code), report)
}

#[test]
fn only_an_unreadable_message_may_be_at_fault_for_an_end_with_a_sqlstate() {
    assert!(sorted("08P01").may_be_of_the_message());
    for code in [
        "57P01", "57P02", "57P03", "57P05", "25006", "08006", "53300", "57014",
    ] {
        assert!(!sorted(code).may_be_of_the_message(), "{code}");
    }
    assert!(!Error::unanswered(Duration::from_secs(1)).may_be_of_the_message());
}

#[test]
fn a_sqlstate_has_one_kind() {
    assert!(matches!(sorted("42704"), Error::UnknownName(_)));
    assert!(matches!(sorted("22023"), Error::InvalidArgument(_)));
    assert!(matches!(sorted("22004"), Error::InvalidArgument(_)));
    assert!(matches!(sorted("40001"), Error::Conflict(_)));
    assert!(matches!(sorted("08006"), Error::Connection(_)));
    assert!(matches!(sorted("57P01"), Error::Connection(_)));
    assert!(matches!(sorted("XX000"), Error::Database(_)));
}

#[test]
fn a_missing_extension_or_right_says_what_to_type() {
    let missing = sorted("3F000").to_string();
    assert!(missing.starts_with("m (3F000). ") && missing.contains("create extension trax"));
    let both = level::KEEPS_BOTH;
    for (function, level, keeps) in [("apply", "admin", ""), ("enqueue", "producer", both)] {
        let refused = sorted("42501").of_call(function).to_string();
        let typed = format!("type: select trax.grant_access('ROLE', '{level}'){keeps}");
        assert!(refused.ends_with(&typed), "{refused}");
    }
}

#[test]
fn the_text_of_an_error_ends_with_the_hint() {
    let report = |sqlstate: &str, message: &str, hint: Option<&str>| Report {
        sqlstate: sqlstate.to_owned(),
        message: message.to_owned(),
        detail: None,
        hint: hint.map(str::to_owned),
    };
    let text = |report: Report| {
        let code = SqlState::from_code(&report.sqlstate);
        Error::from_report(&code, report).to_string()
    };
    for code in ["22023", "55000", "54000", "42501", "P0001"] {
        let said = text(report(code, "no", Some("Type: yes")));
        assert_eq!(said, format!("no ({code}). Type: yes"));
    }
    assert_eq!(text(report("22023", "no", None)), "no (22023)");
    let mut detailed = report("22023", "no", Some("Type: yes"));
    detailed.detail = Some("It is 5.".to_owned());
    assert_eq!(text(detailed.clone()), "no (22023): It is 5. Type: yes");
    detailed.hint = None;
    assert_eq!(text(detailed), "no (22023): It is 5.");
    let escape = text(report("22P05", "unsupported Unicode escape sequence", None));
    assert!(escape.contains("Leave out the character NUL"), "{escape}");
    let nul = "invalid byte sequence for encoding \"UTF8\": 0x00";
    let said = text(report("22021", nul, None));
    assert!(said.contains("Leave out the character NUL"), "{said}");
}

#[test]
fn a_missing_table_of_ours_is_reported_in_every_language() {
    for ours in [
        "relation \"trax.job\" does not exist",
        "Relation »trax.job« existiert nicht",
        "la relation « trax.job » n'existe pas",
    ] {
        assert!(names_ours(ours), "{ours}");
    }
    for other in ["relation \"my_trax.job\" does not exist", "\"shop.trax\""] {
        assert!(!names_ours(other), "{other}");
    }
}

#[test]
fn an_error_says_its_cause_and_hands_it_on() {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let error = Error::Connection(refused.into());
    assert_eq!(chain(&error), "connection: connection refused");
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
    assert_eq!(
        cause.map(io::Error::kind),
        Some(io::ErrorKind::ConnectionRefused)
    );
}

#[test]
fn what_is_the_servers_trouble_is_worth_another_try() {
    for code in [
        "57P03", "40P01", "57014", "55P03", "53100", "53200", "58030", "08006", "25006",
    ] {
        assert!(sorted(code).is_transient(), "{code}");
    }
    assert!(sorted("57P03").is_starting() && !sorted("57P01").is_starting());
    for code in ["54000", "22P05", "XX000", "42501", "55000"] {
        assert!(!sorted(code).is_transient(), "{code}");
    }
    assert!(!sorted("22023").is_transient());
}

//! The names that a time zone may have.

use harness::session::session;

#[tokio::test]
async fn every_place_that_the_server_lists_is_a_zone() {
    let (_db, s) = session().await;
    let refused = "do $$ declare zone text; begin
            for zone in select name from pg_timezone_names
                where name !~ '^(posix/)?(localtime|posixrules|Factory)$'
            loop
                perform trax.schedule('m', 'a', cron => '0 12 * * *', timezone => zone);
            end loop;
        end $$";
    s.get(refused).await;
}

#[tokio::test]
async fn names_that_the_server_does_not_list_are_refused() {
    let (_db, s) = session().await;
    let names = [
        "right/Europe/Berlin",
        "Etc/GMT+99",
        "Etc/GMT-150:30",
        "Etc/GMT+3DST,M3.2.0,M11.1.0",
        "Europe/Berlin+3",
        "UTC+3",
        "<+03>-3",
        "localtime",
        "posixrules",
        "Factory",
        "posix/Factory",
        ":Europe/Berlin",
        "europe/berlin",
        "utc",
        "Europe/Berlin ",
        "Europe",
        "../zoneinfo/UTC",
        "tzdata.zi",
        "",
    ];
    for name in names {
        let sql =
            format!("select trax.schedule('m', 'a', cron => '0 12 * * *', timezone => '{name}')");
        let refusal = s.refusal(&sql).await;
        assert_eq!(refusal.code, "22023", "{name}");
        assert!(refusal.message.contains("time zone"), "{name}: {refusal}");
        assert!(refusal.hint.starts_with("Specify "), "{name}: {refusal}");
    }
}

#[tokio::test]
async fn a_name_in_other_case_is_refused_with_its_spelling_and_a_stored_one_still_runs() {
    let (_db, s) = session().await;
    let refusal = s
        .refusal("select trax.schedule('m', 'a', cron => '* * * * *', timezone => 'europe/berlin')")
        .await;
    assert_eq!(refusal.hint, "Specify 'Europe/Berlin'.");
    s.get(
        "select trax.schedule('m', 'a', cron => '* * * * *', timezone => 'Europe/Berlin');
         update trax.manifest set timezone = 'europe/berlin';
         update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()",
    )
    .await;
    assert_eq!(s.tick("queue_due").await, 1);
}

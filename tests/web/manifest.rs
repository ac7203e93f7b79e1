//! Manifests: related manifests, past runs, and a change with a preview.

use super::client::{Web, between};
use harness::session::session;
use harness::shared_server;

#[tokio::test]
async fn the_manifests_around_one_are_a_picture_with_links() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('load', task => 't', cron => '@daily');
        select trax.schedule('clean <b>', task => 't', depends_on => '{load}', enabled => false);
        select trax.schedule('report', task => 't', depends_on => '{clean <b>,load}');
        select trax.schedule('mail', task => 't', depends_on => '{report}');
        select trax.schedule('alone', task => 't', cron => '@daily')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/manifests/clean%20%3Cb%3E").await;
    let picture = between(&page, "<svg class=\"graph\"", "</svg>");
    assert_eq!(picture.matches("<a href=").count(), 4, "{picture}");
    assert_eq!(picture.matches("class=\"edge\"").count(), 4, "{picture}");
    assert!(
        picture.contains("href=\"/manifests/mail\"")
            && picture.contains("clean &lt;b&gt;, disabled"),
        "{picture}"
    );
    let alone = web.page("/manifests/alone").await;
    assert!(!alone.contains("class=\"graph\""), "{alone}");
}

#[tokio::test]
async fn the_list_shows_how_each_manifest_went_lately() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('m', task => 't', max_retries => 5, retry_delay => '0');
        select trax.trigger('m');
        select trax.fail(job_id, token, 'no', retry_in => '0') from trax.claim_next('w');
        select trax.complete(job_id, token) from trax.claim_next('w')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/manifests").await;
    let bars = between(&page, "<svg class=\"outcomes\"", "</svg>");
    assert!(bars.contains("1 of the last 2 failed"), "{bars}");
    let (failed, completed) = (bars.find("\"failed\""), bars.find("\"completed\""));
    assert!(failed.is_some() && failed < completed, "{bars}");
}

#[tokio::test]
async fn a_change_of_times_is_tried_before_it_is_made() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('m', task => 't', cron => '0 2 * * *', timezone => 'Europe/Berlin')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let ask = "/act/reschedule?manifest=m";
    let page = web.page("/manifests/m").await;
    let change = page
        .split("href=\"")
        .find(|part| part.contains(">Change its times<"));
    let (link, _) = change
        .and_then(|part| part.split_once('"'))
        .expect("a link");
    let form = web.page(&link.replace("&amp;", "&")).await;
    for value in ["0 2 * * *", "Europe/Berlin"] {
        assert!(
            form.contains(&format!("value=\"{value}\"")),
            "its times are in the form: {form}"
        );
    }
    let fields = "manifest=m&cron=30+4+*+*+*&timezone=Asia%2FTokyo";
    let tried = web.act(ask, &format!("{fields}&try=1"), &[]).await;
    assert_eq!(tried.status, 200, "{}", tried.body);
    assert_eq!(
        tried.body.matches(" 04:30:00 +09:00").count(),
        10,
        "{}",
        tried.body
    );
    assert!(tried.body.contains("Nothing was changed"), "{}", tried.body);
    assert!(
        tried.body.contains("value=\"30 4 * * *\""),
        "{}",
        tried.body
    );
    let stored = "select cron, every, timezone from trax.manifest";
    assert_eq!(s.get(stored).await, "0 2 * * *||Europe/Berlin");
    let audited = "select count(*) from trax.audit where action = 'schedule'";
    assert_eq!(s.get(audited).await, "1", "only that of the test");
    let wrong = web.act(ask, "manifest=m&cron=61+*+*+*+*&try=1", &[]).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let made = web.act(ask, fields, &[]).await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(s.get(stored).await, "30 4 * * *||Asia/Tokyo");
    let every = web.act(ask, "manifest=m&every=2+hours", &[]).await;
    assert_eq!(every.status, 200, "{}", every.body);
    assert_eq!(s.get(stored).await, "|02:00:00|Asia/Tokyo");
}

#[tokio::test]
async fn enabling_names_the_dead_letter_that_stops_the_schedule_all_the_same() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', cron => '@daily', max_retries => 0), trax.trigger('m');
        select trax.fail(job_id, token, 'it broke') from trax.claim_next();
        select trax.disable_manifest('m')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let letter = s.get("select id from trax.dead_letter").await;
    let stopped = format!("stands still until dead letter {letter} is requeued");
    let enabled = web.act("/act/enable?manifest=m", "manifest=m", &[]).await;
    assert!(enabled.body.contains(&stopped), "{}", enabled.body);
    let page = web.page("/manifests/m").await;
    assert!(page.contains("trax.on_dead_letter"), "{page}");
    s.get(&format!("select trax.acknowledge_dead_letter({letter})"))
        .await;
    let enabled = web.act("/act/enable?manifest=m", "manifest=m", &[]).await;
    assert!(enabled.body.contains("<b>done</b>"), "{}", enabled.body);
}

#[tokio::test]
async fn what_is_exported_is_applied_elsewhere_and_is_the_same() {
    let (database, s) = session().await;
    let input =
        r#"{"n": 1.10, "big": 123456789012345678901234567890, "none": null, "a": [null, "ü"]}"#;
    s.get(&format!(
        "select trax.configure_rate('api', 60, '90 s', burst => 2);
        select trax.configure_group('g', max_active_jobs => 3, rate => 'api');
        select trax.schedule('load <b>', task => 't', cron => '0 2 * * *', timezone => 'Europe/Berlin', group_name => 'g', input => '{input}');
        select trax.schedule('mail', task => 't', depends_on => '{{load <b>}}', retry_delay => '5 s', enabled => false);
        select trax.schedule('clean', sql => 'vacuum trax.run', every => '1 h')"
    ))
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let answer = web.get("/export").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("manifests.json"), "{}", answer.head);
    let (_other, o) = session().await;
    let document = answer.body.replace('\'', "''");
    let applied = o
        .get(&format!("select count(*) from trax.apply('{document}')"))
        .await;
    assert_eq!(applied, "5");
    let stored = "select jsonb_agg(to_jsonb(m) - '{manifest_id,applied,created_at,updated_at}'::text[] order by name)
        from trax.manifest m";
    assert_eq!(o.get(stored).await, s.get(stored).await);
    let groups = "select name, max_active_jobs, rate from trax.manifest_group";
    assert_eq!(o.get(groups).await, s.get(groups).await);
    let rates = "select name, allowed, period, burst from trax.rate";
    assert_eq!(o.get(rates).await, s.get(rates).await);
    let again = o
        .get(&format!(
            "select string_agg(distinct action, ' ') from trax.apply('{document}', dry_run => true)"
        ))
        .await;
    assert_eq!(again, "unchanged");

    let one = web.page("/export?manifest=load+%3Cb%3E").await;
    assert!(
        one.contains("\"load <b>\"") && one.contains("\"g\"") && one.contains("\"api\""),
        "{one}"
    );
    assert!(!one.contains("mail"), "{one}");
    assert_eq!(web.get("/export?manifest=nothing").await.status, 404);
    let page = web.page("/manifests/mail").await;
    assert!(page.contains("href=\"/export?manifest=mail\""), "{page}");
    s.get("select trax.schedule('nothing', task => 't', input => 'null')")
        .await;
    let refused = web.get("/export").await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(
        refused.body.contains("its input is null"),
        "{}",
        refused.body
    );
}

#[tokio::test]
async fn the_week_has_every_time_and_says_where_it_ends() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('hourly', task => 't', cron => '0 * * * *');
        select trax.schedule('often', task => 't', cron => '*/5 * * * *');
        select trax.schedule('daily', task => 't', cron => '30 4 * * *');
        select trax.schedule('off', task => 't', cron => '* * * * *', enabled => false)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/manifests").await;
    let week = between(&page, "aria-label=\"The next seven days\"", "</table>");
    let row = |name: &str| between(week, &format!(">{name}</a>"), "</tr>");
    assert_eq!(row("hourly").matches("24, from 00:00 to 23:00").count(), 6);
    let days = row("daily").matches("04:30").count();
    assert!((6..=7).contains(&days), "{week}");
    // The times of a frequent manifest are computed up to a number, beyond which it says so.
    let often = row("often");
    let times = often.matches(':').count() - 2 * often.matches(" from ").count();
    assert_eq!(times, 300, "{often}");
    assert!(often.matches("and more").count() >= 4, "{often}");
    assert!(!week.contains(">off</a>"), "{week}");
}

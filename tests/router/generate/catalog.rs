//! The functions of the extension, from its catalog.

use tokio_postgres::Client;

pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) default: Option<String>,
}

pub(super) struct Function {
    pub(super) name: String,
    pub(super) is_procedure: bool,
    pub(super) is_set: bool,
    pub(super) arguments: Vec<Argument>,
    /// The columns of its result table, if any.
    pub(super) columns: Vec<(String, String)>,
    pub(super) result: String,
    pub(super) comment: String,
}

/// The functions of every level, by name.
pub(super) async fn functions(client: &Client) -> Vec<Function> {
    let sql = "
        select
            p.proname::text as name,
            p.prokind = 'p' as is_procedure,
            p.proretset as is_set,
            format_type(p.prorettype, null) as result,
            obj_description(p.oid, 'pg_proc') as comment,
            array(
                select a.name from unnest(p.proargnames[:p.pronargs]) with ordinality a (name, at) order by a.at
            ) as names,
            array(
                select format_type(a.type, null) from unnest(p.proargtypes) with ordinality a (type, at) order by a.at
            ) as types,
            array(
                select pg_get_function_arg_default(p.oid, n) from generate_series(1, p.pronargs) n order by n
            ) as defaults,
            array(
                select p.proargnames[a.at] || '|' || format_type(a.type, null)
                from unnest(p.proallargtypes) with ordinality a (type, at)
                where p.proargmodes[a.at] = 't'
                order by a.at
            ) as columns
        from pg_proc p
        where p.pronamespace = 'trax'::regnamespace
            and p.proname = any (trax.functions_of('reader') || trax.functions_of('producer')
                || trax.functions_of('worker') || trax.functions_of('admin'))
        order by p.proname";
    let rows = client.query(sql, &[]).await.expect("functions are listed");
    rows.iter()
        .map(|row| {
            let names: Vec<String> = row.get("names");
            let types: Vec<String> = row.get("types");
            let defaults: Vec<Option<String>> = row.get("defaults");
            let columns: Vec<String> = row.get("columns");
            let arguments = names.into_iter().zip(types).zip(defaults);
            let split = |column: &String| {
                let (name, kind) = column.split_once('|').expect("a name and a type");
                (name.to_owned(), kind.to_owned())
            };
            Function {
                name: row.get("name"),
                is_procedure: row.get("is_procedure"),
                is_set: row.get("is_set"),
                arguments: arguments
                    .map(|((name, kind), default)| Argument {
                        name,
                        kind,
                        default,
                    })
                    .collect(),
                columns: columns.iter().map(split).collect(),
                result: row.get("result"),
                comment: row.get("comment"),
            }
        })
        .collect()
}

//! The rights that docs/threat-model/postgres.md gives to each role, and an attacker.
#![allow(dead_code, reason = "each test program uses some of it")]

const PAGE: &str = include_str!("../../../../docs/threat-model/postgres.md");

/// Makes a role that can log in, and gives it what the page says.
pub(crate) fn rights(role: &str) -> String {
    let blocks = PAGE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let to = format!(" TO {role};");
    let mut found = blocks.filter(|block| block.contains(&to));
    let (Some(rights), None) = (found.next(), found.next()) else { panic!("one block of rights for {role}") };
    format!("CREATE ROLE {role} LOGIN; {rights}")
}

/// Anybody's operator, found before the server's own where the types of the operands do not match exactly.
pub(crate) const HOSTILE: &str =
    "GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC; CREATE ROLE mallory LOGIN; SET ROLE mallory;
    CREATE FUNCTION public.hostile(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'mallory runs as %', current_user; END $$;
    CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.hostile);
    CREATE FUNCTION public.concat_ws(text, text, bigint, bigint, bigint) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'mallory runs as %', current_user; END $$;
    CREATE FUNCTION public.concat_ws(text, bigint, bigint, bigint, text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'mallory runs as %', current_user; END $$;";

-- amend: changes a claim, or its lock. p_change is units, give, value, owner, tail, limit or ask; p_n its number (of an owner: for
-- how long the old id is refused), p_token the latch that is given something, p_op which request a give, or which change of units or value it is, p_value the value, p_heir and what follows the new owner's.
CREATE OR REPLACE FUNCTION leasehold.amend_1(
    p_name text, p_id bytea, p_limit bigint, p_leave boolean, p_above bigint, p_keep bigint, p_change text, p_n bigint,
    p_op bigint, p_token bigint, p_value bytea, p_heir bytea, p_heir_inbox bigint, p_heir_label text, p_heir_lease bigint
) RETURNS leasehold.answer_1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    before leasehold.keys;
    h leasehold.keys;
    r leasehold.claims;
    most bigint;
    more bigint;
    fresh boolean := false;
    answer leasehold.answer_1 := leasehold.plain_1('gone');
BEGIN
    LOOP
        SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_name FOR UPDATE;
        EXIT WHEN FOUND OR p_change <> 'limit';
        INSERT INTO leasehold.keys (name, declared, effective, held, claims, waiting, quiet_until)
        VALUES (p_name, p_limit, p_limit, 0, 0, 0, never) ON CONFLICT DO NOTHING;
        fresh := FOUND;
    END LOOP;
    IF h.name IS NULL THEN
        RETURN answer;
    END IF;
    now_ms := leasehold.clock_1();
    before := h;

    IF p_change = 'ask' THEN
        -- A tail has no owner who could be asked.
        SELECT c.* INTO r FROM leasehold.claims c
        WHERE c.name = p_name AND c.held > 0 AND c.token = p_n AND coalesce(c.expires > now_ms, true)
            AND c.id <> leasehold.ownerless_1(c.seat);
        IF FOUND THEN
            UPDATE leasehold.claims c SET asked = true WHERE c.name = p_name AND c.id = r.id AND NOT c.asked;
            -- Also when it was asked before: it may not have heard.
            PERFORM leasehold.tell_1(r.inbox, 0, 0, 0, p_name);
            answer := leasehold.plain_1('done');
        END IF;
        RETURN answer;
    ELSIF p_change = 'give' THEN
        -- Counts the latch with this token down, once per operation.
        SELECT c.* INTO r FROM leasehold.claims c
        WHERE c.name = p_name AND c.held > 0 AND c.token = p_token AND coalesce(c.expires > now_ms, true);
        IF NOT FOUND THEN
            RETURN answer;
        ELSIF r.count IS NULL THEN
            RETURN leasehold.plain_1('uncounted');
        ELSIF p_op = ANY (r.given) THEN
            RETURN leasehold.plain_1('left', r.count);
        END IF;
        more := greatest(r.count - p_n, 0);
        IF more > 0 THEN
            UPDATE leasehold.claims c SET count = more, given = c.given || p_op WHERE c.name = p_name AND c.id = r.id;
            RETURN leasehold.plain_1('left', more);
        END IF;
        -- A late copy of the request that set it would set it again, for ever.
        ready := leasehold.refuse_1(r.id, now_ms);
        DELETE FROM leasehold.claims c WHERE c.name = p_name AND c.id = r.id;
        h.held := h.held - r.held;
        h.claims := h.claims - 1;
        h.waiting := h.waiting - (r.held < r.wanted)::integer;
        h := leasehold.catch_up_1(h, now_ms, 0);
        ready := leasehold.close_1(before, h, now_ms);
        RETURN leasehold.plain_1('left', 0);
    ELSIF p_change = 'limit' THEN
        IF EXISTS (SELECT FROM leasehold.refusals f WHERE f.id = p_id AND f.until > now_ms) THEN
            -- A copy of a resize that was made or withdrawn: a later one may have been made since.
            IF fresh THEN
                DELETE FROM leasehold.keys k WHERE k.name = p_name;
            END IF;
            RETURN leasehold.plain_1('done');
        END IF;
        IF h.declared <> p_limit AND leasehold.is_in_use_1(h, now_ms) THEN
            RETURN leasehold.plain_1('limit', h.declared);
        END IF;
        -- Nothing is granted before the new limit is known.
        h := leasehold.enter_1(h, p_limit, now_ms);
        h.effective := p_n;
        ready := leasehold.refuse_1(p_id, now_ms);
        h := leasehold.catch_up_1(h, now_ms, 0);
        ready := leasehold.close_1(before, h, now_ms);
        RETURN leasehold.plain_1('done');
    END IF;

    -- Refuses what cannot be done before anything is written: an operation that fails changes nothing.
    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
    IF FOUND AND coalesce(r.expires > now_ms, true) THEN
        -- After the limit went down a holder may have more than it; it may keep that, or give back some.
        most := greatest(h.effective, r.held);
        IF p_change = 'units' AND (p_n = 0 OR p_n > most) THEN
            RETURN leasehold.plain_1('units', most);
        ELSIF p_change = 'owner' AND p_heir <> p_id
            AND EXISTS (SELECT FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_heir) THEN
            RETURN leasehold.plain_1('heir');
        END IF;
    END IF;
    h := leasehold.catch_up_1(h, now_ms, coalesce(r.seat, 0));

    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
    IF p_change = 'owner' AND EXISTS (SELECT FROM leasehold.refusals f WHERE f.id = p_heir AND f.until > now_ms) THEN
        -- Its adopter gave up before this arrived: nobody would look after it.
        NULL;
    ELSIF r.id IS NULL THEN
        -- A hand-over that was carried out before: its reply was lost.
        IF p_change = 'owner' THEN
            SELECT c.* INTO r FROM leasehold.claims c
            WHERE c.name = p_name AND c.id = p_heir AND c.held > 0 AND coalesce(c.expires > now_ms, true);
            IF FOUND THEN
                answer := leasehold.granted_1(r, now_ms, false);
            END IF;
        END IF;
    ELSIF r.held = 0 OR r.expires <= now_ms THEN
        -- Only what holds can be amended, and what is over does not come back.
        NULL;
    ELSIF p_change IN ('units', 'value') AND r.count IS NULL AND p_op <= r.given[1] THEN
        -- A late copy: this change, or a later one, was made already.
        answer := leasehold.standing_1(h, p_id, now_ms, false);
    ELSIF p_change = 'units' THEN
        -- Grows or shrinks in place.
        h.waiting := h.waiting - (r.held < r.wanted)::integer;
        h.held := h.held - greatest(r.held - p_n, 0);
        r.held := least(r.held, p_n);
        r.wanted := p_n;
        r.at_least := p_n;
        more := p_n - r.held;
        -- Who holds already goes before all who wait: they may be waiting for it.
        IF more > 0 AND more <= h.effective - h.held THEN
            r.token := leasehold.number_1(p_above);
            r.held := p_n;
            r.since := now_ms;
            h.held := h.held + more;
        END IF;
        answer := NULL;
        IF r.held < r.wanted AND p_leave THEN
            r.wanted := r.held;
            r.at_least := r.held;
            answer := leasehold.plain_1('busy');
        END IF;
        h.waiting := h.waiting + (r.held < r.wanted)::integer;
        UPDATE leasehold.claims c
        SET held = r.held, wanted = r.wanted, at_least = r.at_least, token = r.token, since = r.since,
            given = CASE WHEN r.count IS NULL THEN ARRAY[p_op] ELSE c.given END
        WHERE c.name = p_name AND c.id = p_id;
        IF answer.said IS NULL THEN
            answer := leasehold.standing_1(h, p_id, now_ms, false);
        END IF;
    ELSIF p_change = 'value' THEN
        UPDATE leasehold.claims c
        SET value = p_value, given = CASE WHEN r.count IS NULL THEN ARRAY[p_op] ELSE c.given END
        WHERE c.name = p_name AND c.id = p_id;
        answer := leasehold.granted_1(r, now_ms, false);
    ELSIF p_change = 'owner' THEN
        IF p_heir <> p_id AND p_n > 0 THEN
            -- A copy of its claim may still be on the way.
            INSERT INTO leasehold.refusals (id, until) VALUES (p_id, now_ms + p_n)
            ON CONFLICT (id) DO UPDATE SET until = excluded.until;
        END IF;
        r.id := p_heir;
        r.asked := false;
        r.inbox := p_heir_inbox;
        r.label := p_heir_label;
        r.token := leasehold.number_1(r.token);
        r.expires := CASE WHEN p_heir_lease IS NOT NULL THEN greatest(now_ms + p_heir_lease, r.expires) END;
        r.lease := r.expires - now_ms;
        h.quiet_until := least(h.quiet_until, r.expires + r.lock_delay);
        UPDATE leasehold.claims c
        SET id = r.id, asked = r.asked, inbox = r.inbox, label = r.label, lease = r.lease, token = r.token,
            expires = r.expires,
            -- The heir counts its own changes.
            given = CASE WHEN r.count IS NULL THEN ARRAY[]::bigint[] ELSE c.given END
        WHERE c.name = p_name AND c.id = p_id;
        answer := leasehold.granted_1(r, now_ms, true);
    ELSIF p_n = 0 THEN
        -- A tail of nothing: given back.
        DELETE FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
        h.held := h.held - r.held;
        h.claims := h.claims - 1;
        h.waiting := h.waiting - (r.held < r.wanted)::integer;
        answer := leasehold.plain_1('done');
    ELSE
        -- Turns a hold into one that nobody owns and that ends by itself.
        h.waiting := h.waiting - (r.held < r.wanted)::integer;
        UPDATE leasehold.claims c
        SET id = leasehold.ownerless_1(c.seat), wanted = c.held, at_least = c.held, expires = now_ms + p_n, lock_delay = 0
        WHERE c.name = p_name AND c.id = p_id;
        h.quiet_until := least(h.quiet_until, now_ms + p_n);
        IF p_keep IS NOT NULL AND h.agreed > 0 THEN
            h.agreed_until := greatest(h.agreed_until, least(now_ms + p_n + p_keep, never));
        END IF;
        answer := leasehold.plain_1('done');
    END IF;

    h := leasehold.catch_up_1(h, now_ms, 0);
    ready := leasehold.close_1(before, h, now_ms);
    RETURN answer;
END $$;

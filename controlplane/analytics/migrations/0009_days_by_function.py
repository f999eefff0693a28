"""Days of minutes are made and dropped by functions of the tables' owner: the application's login owns no table."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION luminet_minutes_make(parent text, day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF parent IS NULL OR day IS NULL OR parent NOT IN ('analytics_minute', 'analytics_keyminute') THEN
        RAISE EXCEPTION '% has no days', parent USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS public.%I (LIKE public.%I INCLUDING ALL) WITH (fillfactor = 70)', name, parent);
    EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                   parent, name, day || ' 00:00+00', (day + 1) || ' 00:00+00');
END $$;
CREATE FUNCTION luminet_minutes_drop(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS public.%I, public.%I',
                   'analytics_minute_' || to_char(day, 'YYYYMMDD'), 'analytics_keyminute_' || to_char(day, 'YYYYMMDD'));
END $$;
REVOKE ALL ON FUNCTION luminet_minutes_make(text, date) FROM PUBLIC;
REVOKE ALL ON FUNCTION luminet_minutes_drop(date) FROM PUBLIC;
"""
BACKWARD = """
DROP FUNCTION luminet_minutes_make(text, date);
DROP FUNCTION luminet_minutes_drop(date);
"""


class Migration(migrations.Migration):
    dependencies = [("analytics", "0008_predicted_effects")]
    code_before = "it makes and drops days by statements of its own, as the tables' owner, and calls no function"
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

"""What may only be added: the database itself refuses to change published revisions and the audit trail."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION luminet_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'tenants_policyrevision'
       AND current_setting('luminet.removing', true) = 'yes' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER revisions_are_immutable BEFORE UPDATE OR DELETE ON tenants_policyrevision
    FOR EACH ROW EXECUTE FUNCTION luminet_refuse_change();
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON tenants_auditrecord
    FOR EACH ROW EXECUTE FUNCTION luminet_refuse_change();
CREATE TRIGGER audit_is_not_truncated BEFORE TRUNCATE ON tenants_auditrecord
    FOR EACH STATEMENT EXECUTE FUNCTION luminet_refuse_change();
CREATE TRIGGER revisions_are_not_truncated BEFORE TRUNCATE ON tenants_policyrevision
    FOR EACH STATEMENT EXECUTE FUNCTION luminet_refuse_change();
"""
BACKWARD = """
DROP TRIGGER revisions_are_not_truncated ON tenants_policyrevision;
DROP TRIGGER audit_is_not_truncated ON tenants_auditrecord;
DROP TRIGGER audit_is_append_only ON tenants_auditrecord;
DROP TRIGGER revisions_are_immutable ON tenants_policyrevision;
DROP FUNCTION luminet_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_organisations_and_policies")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

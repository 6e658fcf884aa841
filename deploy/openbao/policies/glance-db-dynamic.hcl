# The glance-db-creds ServiceAccount of a namespace: credentials of that namespace's own database role, and of no other.
path "database/mariadb/creds/glance-{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}" {
  capabilities = ["read"]
}

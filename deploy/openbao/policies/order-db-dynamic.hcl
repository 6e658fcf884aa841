# The order-db-creds ServiceAccount of a plane's namespace: credentials of the databases ordered from that plane.
# The dot before the glob is what isolates namespaces: without it "open" would read what belongs to "openstack".
path "database/mariadb/creds/order.{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}.*" {
  capabilities = ["read"]
}

# The operator: writes the database roles of orders and revokes what they issued. It never sees a database connection,
# and reads no credentials.
path "database/mariadb/roles/order.*" {
  capabilities = ["create", "read", "update", "delete"]
}

path "sys/leases/revoke-prefix/database/mariadb/creds/order.*" {
  capabilities = ["update", "sudo"]
}

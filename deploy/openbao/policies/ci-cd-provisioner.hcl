# A pipeline that seeds secrets. It cannot delete.
path "kv-v2/data/*" {
  capabilities = ["create", "read", "update"]
}

path "kv-v2/metadata/*" {
  capabilities = ["list", "read"]
}

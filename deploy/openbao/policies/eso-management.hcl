# External Secrets' own ServiceAccount: what the management cluster itself is built from.
path "kv-v2/data/bootstrap/*" {
  capabilities = ["read"]
}

path "kv-v2/data/infrastructure/*" {
  capabilities = ["read"]
}

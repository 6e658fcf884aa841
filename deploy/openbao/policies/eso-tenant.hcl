# The eso-tenant-auth ServiceAccount of a namespace: reads that namespace's own secrets and writes the few that are pushed
# from it. Every path holds the caller's namespace, so no tenant reaches another's.

path "kv-v2/data/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/*" {
  capabilities = ["read"]
}

path "kv-v2/data/openstack/glance/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/*" {
  capabilities = ["read"]
}

path "kv-v2/data/openstack/placement/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/*" {
  capabilities = ["read"]
}

path "kv-v2/data/openstack/barbican/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/*" {
  capabilities = ["read"]
}

path "kv-v2/data/bootstrap/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/*" {
  capabilities = ["read"]
}

# Delivered service accounts. External Secrets deletes the data and then the metadata, and needs both rights: without the
# second the first pass of each deletion fails and the metadata stays for ever.
path "kv-v2/data/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/service-accounts/+" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/metadata/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/service-accounts/+" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/data/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/admin/app-credential" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/metadata/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/admin/app-credential" {
  capabilities = ["create", "read", "update"]
}

# Keys and the admin password, which are backed up from the plane's namespace.
path "kv-v2/data/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/fernet-keys" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/metadata/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/fernet-keys" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/data/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/credential-keys" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/metadata/openstack/keystone/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/credential-keys" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/data/bootstrap/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/admin" {
  capabilities = ["create", "read", "update", "delete"]
}

path "kv-v2/metadata/bootstrap/{{identity.entity.aliases.KUBERNETES_MANAGEMENT_ACCESSOR.metadata.service_account_namespace}}/+/admin" {
  capabilities = ["create", "read", "update", "delete"]
}

# shellcheck shell=bash
# How this machine reaches package indexes: the settings of pip and uv, certificates, names.  It reads them at run
# time and repeats them in the lab's machines; it never names an index itself.

# Variables that say where packages come from; anything else of the caller's environment stays outside.
index_variables() {
  compgen -e | grep -E '^(PIP_(INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|TRUSTED_HOST|CERT|DEFAULT_TIMEOUT)|UV_(INDEX|DEFAULT_INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NATIVE_TLS|SYSTEM_CERTS|HTTP_TIMEOUT)|(https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY|SSL_CERT_(FILE|DIR))$' || :
}

# The machine's and the caller's settings files, as "path in the lab:path here"; @home is every user's.
index_files() {
  local config=${XDG_CONFIG_HOME:-$HOME/.config} file
  for file in /etc/pip.conf /etc/xdg/pip/pip.conf /etc/uv/uv.toml; do
    [ ! -r "$file" ] || echo "$file:$file"
  done
  for file in pip/pip.conf uv/uv.toml; do
    [ ! -r "$config/$file" ] || echo "@home/.config/$file:$config/$file"
  done
  [ ! -r "$HOME/.pip/pip.conf" ] || echo "@home/.pip/pip.conf:$HOME/.pip/pip.conf"
}

# Local folders and files that the settings name (find-links, file:// indexes, certificates), one a line.
# The pages of an index (PEP 503) link to files next to the folder "simple": the folder above holds both.
index_folders() {
  local file name
  {
    while IFS=: read -r _ file; do index_values < "$file"; done < <(index_files)
    for name in $(index_variables); do printf '%s\n' "${!name}"; done
  } | tr -s ' ,"[]\t' '\n' | sed -n 's|^file://||; s|/simple/*$||; /^\/./p' | sort -u |
    while read -r file; do [ ! -e "$file" ] || echo "$file"; done
}

# Only these keys name places; for example, the lab ignores a cache folder.
index_values() {
  awk '/^[^ \t]/ { on = /^(find-links|index-url|extra-index-url|index|url|default-index|cert|client-cert)[ \t]*=/
                   sub(/^[^=]*=/, "") }
       on { print }'
}

# The bundle of certificates this machine trusts, a proxy's own one included.
certificate_bundle() {
  local file
  for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    [ ! -r "$file" ] || { echo "$file" && return; }
  done
}

#!/bin/sh
# Makes certificates as deploy/tls/make_certificates does, but of an intermediate authority.
#
# Usage: certificate_chain.sh make FOLDER JOB BEGIN END    BEGIN and END as for date, "-1 hour"
#        certificate_chain.sh revoke FOLDER ROLE             in the crl/ of all roles
#
# FOLDER/ROLE/ is a --tls_dir: ca.pem has the root, cert.pem the intermediate authority too.
set -eu
command="$1" folder="$2"
umask 077
mkdir -p "$folder/authority/issued"
cd "$folder/authority"
roles="server worker operator"

if [ "$command" = revoke ]; then
  openssl ca -config ca.cnf -cert intermediate.pem -keyfile intermediate.key -revoke "$3.pem"
  openssl ca -config ca.cnf -cert intermediate.pem -keyfile intermediate.key -gencrl -crldays 100 \
    -out list.pem
  for role in $roles; do
    mkdir -p "../$role/crl"
    cp list.pem "../$role/crl/$(openssl crl -hash -noout -in list.pem).r0"
  done
  exit
fi

job="$3" begin="$4" end="$5"
touch index.txt
cat > ca.cnf << 'END'
[req]
distinguished_name = name
[name]
[ca]
default_ca = authority
[authority]
database = index.txt
new_certs_dir = issued
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
CN = optional
END
# request NAME: a key and a request for a certificate.
request() {
  openssl req -config ca.cnf -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -keyout "$1.key" -subj "/CN=$1" -out "$1.csr"
}
# sign NAME EXTENSIONS FLAG...: its certificate.
sign() {
  local name="$1" extensions="$2"
  shift 2
  printf "$extensions" > "$name.ext"
  openssl ca -config ca.cnf -batch -notext -in "$name.csr" -out "$name.pem" -extfile "$name.ext" "$@"
}
date_of() { date --utc --date="$1" +%Y%m%d%H%M%SZ; }
# Called again, it makes new certificates of the same authorities.
if [ ! -e intermediate.pem ]; then
  authority="keyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
  request root
  sign root \
    "basicConstraints=critical,CA:TRUE\n$authority" \
    -selfsign -keyfile root.key -startdate "$(date_of '-1 hour')" -enddate "$(date_of '+30 days')"
  request intermediate
  sign intermediate \
    "basicConstraints=critical,CA:TRUE,pathlen:0\n$authority" \
    -cert root.pem -keyfile root.key -startdate "$(date_of '-1 hour')" -enddate "$(date_of '+10 days')"
fi
for role in $roles; do
  mkdir -p "../$role"
  request "$role"
  sign "$role" \
    "subjectAltName=critical,URI:spiffe://pawl.local/pawl/$job/$role\nbasicConstraints=CA:FALSE\n" \
    -cert intermediate.pem -keyfile intermediate.key -startdate "$(date_of "$begin")" \
    -enddate "$(date_of "$end")"
  cat "$role.pem" intermediate.pem > "../$role/cert.pem"
  cp "$role.key" "../$role/key.pem"
  cp root.pem "../$role/ca.pem"
done

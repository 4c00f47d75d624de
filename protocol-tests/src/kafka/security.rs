//! Certificates and users of clusters that are not plaintext.
//!
//! A cluster that is `secured` keeps its plaintext listener, through which the test's own clients go, and has one listener
//! more for each way in. So one cluster does for all of them, and kmirror alone is under test there.

use crate::process::Program;
use crate::{HarnessError, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A way into a secured cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// `SSL`, without certificates of clients.
    Ssl,
    /// `SSL`, only with a certificate of a client.
    MutualSsl,
    /// `SASL_PLAINTEXT` with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER for tokens without a signature.
    Sasl,
    /// `SASL_SSL` with the same.
    SaslSsl,
    /// `SASL_PLAINTEXT` with OAUTHBEARER for tokens that [`Certificates::token`] signs, checked by a key set.
    Jwks,
    /// `SSL` with a certificate for another name.
    WrongName,
    /// `SSL` with a certificate whose time is over.
    Expired,
}

impl Listener {
    pub(super) const ALL: [Listener; 7] = [
        Listener::Ssl,
        Listener::MutualSsl,
        Listener::Sasl,
        Listener::SaslSsl,
        Listener::Jwks,
        Listener::WrongName,
        Listener::Expired,
    ];

    fn name(self) -> &'static str {
        match self {
            Listener::Ssl => "SSL",
            Listener::MutualSsl => "MUTUAL",
            Listener::Sasl => "SASL",
            Listener::SaslSsl => "SASLSSL",
            Listener::Jwks => "JWKS",
            Listener::WrongName => "WRONGNAME",
            Listener::Expired => "EXPIRED",
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            Listener::Sasl | Listener::Jwks => "SASL_PLAINTEXT",
            Listener::SaslSsl => "SASL_SSL",
            _ => "SSL",
        }
    }

    /// How far behind the first port of its node it is.
    pub(super) fn offset(self) -> u16 {
        2 + Listener::ALL.iter().position(|listener| *listener == self).unwrap_or_default() as u16
    }
}

/// Users of secured clusters and their passwords.
pub const USERS: [(&str, &str); 2] = [("alice", "alice-secret"), ("bob", "b=o,b \"secret\"")];

/// `--add-scram` of `StorageTool` for each user.
pub(super) fn scram_arguments() -> Vec<String> {
    let mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"];
    // A comma splits the tool's own argument, so only alice has SCRAM.
    let (name, password) = USERS[0];
    mechanisms
        .iter()
        .flat_map(|mechanism| {
            ["--add-scram".to_owned(), format!("{mechanism}=[name={name},password={password}]")]
        })
        .collect()
}

/// The lines of `server.properties` that open the listeners of a node beside its plaintext ones.
pub(super) fn server_properties(
    certificates: &Certificates,
    plaintext: &str,
    advertised: &str,
    port: u16,
) -> String {
    let all =
        Listener::ALL.map(|listener| format!("{}://127.0.0.1:{}", listener.name(), port + listener.offset()));
    let protocols = Listener::ALL.map(|listener| format!("{}:{}", listener.name(), listener.protocol()));
    let mut text = format!(
        "listeners={plaintext},{all}\nadvertised.listeners={advertised},{all}\n\
         listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}\n\
         ssl.truststore.type=PEM\nssl.truststore.location={ca}\nssl.keystore.type=PEM\n",
        all = all.join(","),
        protocols = protocols.join(","),
        ca = certificates.path("ca.pem").display(),
    );
    for listener in Listener::ALL {
        let prefix = format!("listener.name.{}", listener.name().to_lowercase());
        let keystore = match listener {
            Listener::WrongName => "wrongname.pem",
            Listener::Expired => "expired.pem",
            _ => "broker.pem",
        };
        let keystore = certificates.path(keystore);
        let auth = if listener == Listener::MutualSsl { "required" } else { "none" };
        let _ = writeln!(text, "{prefix}.ssl.keystore.location={}", keystore.display());
        let _ = writeln!(text, "{prefix}.ssl.keystore.type=PEM");
        let _ = writeln!(text, "{prefix}.ssl.client.auth={auth}");
        match listener {
            Listener::Sasl | Listener::SaslSsl => text.push_str(&sasl(&prefix)),
            Listener::Jwks => text.push_str(&key_set(&prefix, certificates)),
            _ => {}
        }
    }
    text
}

/// What the JVM of a broker needs beside that: it asks only addresses that it is allowed to.
pub(super) fn jvm_option(certificates: &Certificates) -> String {
    format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={}", certificates.key_set_url())
}

/// Whom tokens must be for, and who must have made them.
pub const TOKEN_CLAIMS: &str = "\"aud\":\"brokers-of-the-tests\",\"iss\":\"https://issuer.example.com\"";

fn key_set(prefix: &str, certificates: &Certificates) -> String {
    let security = "org.apache.kafka.common.security.oauthbearer";
    format!(
        "{prefix}.sasl.enabled.mechanisms=OAUTHBEARER\n\
         {prefix}.oauthbearer.sasl.jaas.config={security}.OAuthBearerLoginModule required \
         unsecuredLoginStringClaim_sub=\"broker\";\n\
         {prefix}.oauthbearer.sasl.server.callback.handler.class={security}.OAuthBearerValidatorCallbackHandler\n\
         {prefix}.sasl.oauthbearer.jwks.endpoint.url={}\n\
         {prefix}.sasl.oauthbearer.expected.audience=brokers-of-the-tests\n\
         {prefix}.sasl.oauthbearer.expected.issuer=https://issuer.example.com\n",
        certificates.key_set_url()
    )
}

fn sasl(prefix: &str) -> String {
    let security = "org.apache.kafka.common.security";
    let users: String = USERS
        .iter()
        .map(|(name, password)| format!(" user_{name}=\"{}\"", password.replace('"', "\\\\\"")))
        .collect();
    format!(
        "{prefix}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n\
         {prefix}.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required \
         unsecuredLoginStringClaim_sub=\"broker\";\n\
         {prefix}.plain.sasl.jaas.config={security}.plain.PlainLoginModule required{users};\n\
         {prefix}.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;\n\
         {prefix}.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;\n"
    )
}

/// Certificates of one test run, made by openssl: an authority, brokers (RSA), a client (EC), and an authority that nobody
/// knows.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes them in a folder that exists.
    pub fn make(folder: &Path) -> Result<Certificates> {
        let certificates = Certificates { folder: folder.to_path_buf() };
        for authority in ["ca", "stranger"] {
            certificates.openssl(&format!(
                "req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -out {authority}.pem -days 3650 \
                 -subj /CN={authority}-of-the-tests"
            ))?;
        }
        let rsa = "rsa:2048";
        let ec = "ec -pkeyopt ec_paramgen_curve:P-256";
        let local = "IP:127.0.0.1,DNS:localhost";
        certificates.sign("broker", rsa, local, 3_650)?;
        certificates.sign("wrongname", rsa, "DNS:elsewhere.example.com,IP:10.9.8.7", 3_650)?;
        certificates.sign("expired", rsa, local, -1)?;
        certificates.sign("client", ec, "DNS:client", 3_650)?;
        certificates.make_key_set()?;
        Ok(certificates)
    }

    /// `jwks.json` with the public half of `jwks.key`.
    fn make_key_set(&self) -> Result<()> {
        self.openssl("genrsa -out jwks.key 2048")?;
        let output = self.openssl("rsa -in jwks.key -noout -modulus")?;
        let digits = output.trim().rsplit('=').next().unwrap_or_default().to_owned();
        let byte = |at: usize| {
            u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16).unwrap_or_default()
        };
        let modulus: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let text = format!(
            "{{\"keys\":[{{\"kty\":\"RSA\",\"use\":\"sig\",\"alg\":\"RS256\",\"kid\":\"one\",\"n\":\"{}\",\"e\":\"AQAB\"}}]}}",
            self.base64_url(&modulus)?
        );
        self.write("jwks.json", text.as_bytes())
    }

    fn key_set_url(&self) -> String {
        format!("file://{}", self.path("jwks.json").display())
    }

    /// A token with these claims, signed with a key of theirs: `jwks.key` is the one that brokers know.
    pub fn token(&self, key: &str, claims: &str) -> Result<String> {
        let head = self.base64_url(b"{\"alg\":\"RS256\",\"kid\":\"one\"}")?;
        let said = format!("{head}.{}", self.base64_url(claims.as_bytes())?);
        self.write("token.said", said.as_bytes())?;
        self.openssl(&format!("dgst -sha256 -sign {key} -out token.signature token.said"))?;
        let path = self.path("token.signature");
        let signature = std::fs::read(&path).map_err(|error| HarnessError::path("read", path, error))?;
        Ok(format!("{said}.{}", self.base64_url(&signature)?))
    }

    fn base64_url(&self, bytes: &[u8]) -> Result<String> {
        self.write("base64.in", bytes)?;
        let text = self.openssl("base64 -A -in base64.in")?;
        Ok(text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_"))
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(file);
        std::fs::write(&path, bytes).map_err(|error| HarnessError::path("write", path, error))
    }

    /// A file of them: `ca.pem`, `stranger.pem`, and `NAME.pem` with key and chain, `NAME.key`, `NAME.crt` for `broker`,
    /// `client` and others that were signed.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The text of a file of them.
    pub fn text(&self, file: &str) -> Result<String> {
        let path = self.path(file);
        std::fs::read_to_string(&path).map_err(|error| HarnessError::path("read", path, error))
    }

    /// Makes a key, lets the authority sign it for these names, and puts both into `NAME.pem`.
    pub fn sign(&self, name: &str, key: &str, names: &str, days: i32) -> Result<()> {
        let extensions = self.path(&format!("{name}.ext"));
        let text = format!(
            "subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        );
        std::fs::write(&extensions, text).map_err(|error| HarnessError::path("write", &extensions, error))?;
        self.openssl(&format!(
            "req -newkey {key} -nodes -keyout {name}.key -out {name}.csr -subj /O=tests/CN={name}"
        ))?;
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile {name}.ext \
             -out {name}.crt"
        ))?;
        let whole = [format!("{name}.key"), format!("{name}.crt"), "ca.pem".to_owned()]
            .iter()
            .map(|file| self.text(file))
            .collect::<Result<String>>()?;
        let path = self.path(&format!("{name}.pem"));
        std::fs::write(&path, whole).map_err(|error| HarnessError::path("write", path, error))
    }

    /// Runs openssl in their folder, with arguments between blanks.
    pub fn openssl(&self, arguments: &str) -> Result<String> {
        let script = format!("cd \"$1\" && exec openssl {arguments}");
        let program = Program::new("sh").args(["-c", &script, "sh"]).arg(&self.folder);
        program.run(&format!("openssl {arguments}"))
    }
}

//! Key and trust stores as the real keytool and openssl make them, shown to a broker that wants a certificate.

use crate::{TIMEOUT, secured};
use protocol_tests::Result;
use protocol_tests::kafka::{Certificates, Isolation, Listener};
use protocol_tests::mirror::Kmirror;
use protocol_tests::process::Program;
use protocol_tests::records::TestRecord;
use std::time::Duration;

/// A store with a key that our authority has signed, and with the authority as a certificate that is trusted.
struct Made {
    name: &'static str,
    kind: &'static str,
    file: String,
    key_password: Option<&'static str>,
}

fn keytool(certificates: &Certificates, arguments: &str) -> Result<String> {
    let folder = certificates.path("");
    let script = format!("cd \"$1\" && exec keytool {arguments}");
    let program = Program::new("sh").args(["-c", &script, "sh"]).arg(folder);
    program.run(&format!("keytool {arguments}"))
}

/// By keytool: key, request, our authority's signature, chain.
fn by_keytool(
    certificates: &Certificates,
    name: &'static str,
    kind: &'static str,
    key: &str,
    more: &str,
    key_password: Option<&'static str>,
) -> Result<Made> {
    let file = format!("{name}.store");
    let opens = format!("-keystore {file} -storetype {kind} -storepass storepass {more}");
    let password = key_password.map(|password| format!("-keypass {password}")).unwrap_or_default();
    keytool(
        certificates,
        &format!("-genkeypair -alias me {key} -dname \"CN={name},O=tests\" -validity 30 {opens} {password}"),
    )?;
    // A second key, of nobody: the one that the broker believes is to be shown.
    keytool(
        certificates,
        &format!("-genkeypair -alias another {key} -dname CN=another -validity 30 {opens} {password}"),
    )?;
    keytool(certificates, &format!("-certreq -alias me -file {name}.csr {opens} {password}"))?;
    certificates.openssl(&format!(
        "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out {name}.crt"
    ))?;
    keytool(certificates, &format!("-importcert -noprompt -alias ca -file ca.pem {opens}"))?;
    keytool(certificates, &format!("-importcert -noprompt -alias me -file {name}.crt {opens} {password}"))?;
    Ok(Made { name, kind, file, key_password })
}

fn by_openssl(certificates: &Certificates, name: &'static str, more: &str) -> Result<Made> {
    let file = format!("{name}.p12");
    certificates.openssl(&format!(
        "pkcs12 -export -in client.crt -inkey client.key -certfile ca.pem -name me -passout pass:storepass {more} -out {file}"
    ))?;
    Ok(Made { name, kind: "PKCS12", file, key_password: None })
}

fn encrypted_pem(certificates: &Certificates, name: &'static str, more: &str) -> Result<Made> {
    certificates
        .openssl(&format!("pkcs8 -topk8 -in client.key -passout pass:keypass {more} -out {name}.key"))?;
    let file = format!("{name}.pem");
    let text = format!("{}{}", certificates.text(&format!("{name}.key"))?, certificates.text("client.crt")?);
    std::fs::write(certificates.path(&file), text).expect("the folder of certificates can be written");
    Ok(Made { name, kind: "PEM", file, key_password: Some("keypass") })
}

#[test]
fn stores_of_keytool_and_openssl_open_the_door() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    let (rsa, ec) = ("-keyalg RSA -keysize 2048", "-keyalg EC -groupname secp256r1");
    let legacy = "-J-Dkeystore.pkcs12.legacy";
    let old = "-certpbe PBE-SHA1-3DES -keypbe PBE-SHA1-3DES -macalg sha1";
    let stores = [
        by_keytool(certificates, "NewPkcs12", "PKCS12", ec, "", None)?,
        by_keytool(certificates, "OldPkcs12", "PKCS12", rsa, legacy, None)?,
        by_keytool(certificates, "JksRsa", "JKS", rsa, "", Some("keypass"))?,
        by_keytool(certificates, "JksEc", "JKS", ec, "", None)?,
        by_openssl(certificates, "NewOpenssl", "")?,
        by_openssl(certificates, "OldOpenssl", old)?,
        encrypted_pem(certificates, "EncryptedPem", "-v2 aes-256-cbc")?,
        encrypted_pem(certificates, "ScryptPem", "-scrypt")?,
    ];
    pair.source().create_topic("stores", 1, &[])?;
    pair.java().produce(&pair.a.bootstrap(), "stores", &[TestRecord::new("k", "v")])?;
    for made in &stores {
        let flow = pair.flow(made.name).topics("stores");
        let text = format!(
            "{}{}",
            flow.text(),
            lines(pair.a.bootstrap_of(Listener::MutualSsl), certificates, made, "storepass")
        );
        Kmirror::run_until_caught_up(&text, TIMEOUT)?;
        assert_eq!(pair.compare(&flow, "stores", Isolation::ReadUncommitted)?, 1, "{}", made.name);
        wrong_password_is_told(certificates, made)?;
    }
    Ok(())
}

fn lines(bootstrap: String, certificates: &Certificates, made: &Made, password: &str) -> String {
    let (alias, path) = (made.name, certificates.path(&made.file));
    let mut text = format!("{alias}.bootstrap.servers = {bootstrap}\n{alias}.security.protocol = SSL\n");
    let mut set = |key: &str, value: &str| text.push_str(&format!("{alias}.ssl.{key} = {value}\n"));
    set("keystore.type", made.kind);
    set("keystore.location", &path.display().to_string());
    if made.kind == "PEM" {
        set("truststore.type", "PEM");
        set("truststore.location", &certificates.path("ca.pem").display().to_string());
    } else {
        set("keystore.password", password);
        set("truststore.type", made.kind);
        set("truststore.location", &path.display().to_string());
        set("truststore.password", password);
    }
    if let Some(password) = made.key_password {
        set("key.password", password);
    }
    text
}

/// Before anything is dialled, and without the password.
fn wrong_password_is_told(certificates: &Certificates, made: &Made) -> Result<()> {
    let flow = format!("clusters = {0}, B\nB.bootstrap.servers = b:1\n{0}->B.enabled = true\n", made.name);
    let wrong = Made {
        name: made.name,
        kind: made.kind,
        file: made.file.clone(),
        key_password: (made.kind == "PEM").then_some("hunter2"),
    };
    let text = format!("{flow}{}", lines("a:1".to_owned(), certificates, &wrong, "hunter2"));
    let mut check = Kmirror::start(&["check"], &text)?;
    let code = check.wait(Duration::from_secs(30))?;
    let output = check.output();
    assert_eq!(code, 2, "{}: {output}", made.name);
    assert!(output.contains("password is wrong"), "{}: {output}", made.name);
    assert!(!output.contains("hunter2") && !output.contains("storepass"), "{output}");
    Ok(())
}

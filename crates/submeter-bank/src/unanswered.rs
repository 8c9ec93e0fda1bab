//! What to do if a bank's server gives no answer.

/// Returns the remedy: for a timeout, or else by the text of the error.
pub(crate) fn remedy(is_timeout: bool, error: &str) -> &'static str {
    if is_timeout {
        return "no answer in time: check whether it can be reached, and what keeps it busy";
    }
    untrusted(error).unwrap_or("start it, or wait for it")
}

/// Returns what is wrong with a server's certificate, in words that say what to do; `None` if
/// something else is wrong. It goes by the text of the error, which is the same whether a client or
/// the system passes on rustls' message: neither exposes its type.
fn untrusted(error: &str) -> Option<&'static str> {
    let (_, why) = error.split_once("invalid peer certificate")?;
    let causes = [
        (
            "CaUsedAsEndEntity",
            "its certificate is a CA certificate, the default of `openssl req -x509`: make one \
             with basicConstraints=CA:FALSE",
        ),
        (
            "not valid for name",
            "its certificate is for another name: use that name for the server, or make one for \
             this name",
        ),
        ("expired", "its certificate has expired: renew it"),
        ("not valid yet", "its certificate is not valid yet: correct the clocks, or renew it"),
    ];
    let known = causes.iter().find(|(part, _)| why.contains(part));
    Some(known.map_or("no trusted authority has signed its certificate", |(_, what)| what))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each fault of a certificate is reported separately.
    #[test]
    fn each_fault_of_a_certificate_is_told() {
        for (why, told) in [
            ("Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            (
                "certificate not valid for name \"a\"; certificate is only valid for …",
                "another name",
            ),
            ("certificate expired: verification time 1 (UNIX), …", "expired: renew"),
            ("certificate not valid yet: verification time 1 (UNIX), …", "clocks"),
            ("UnknownIssuer", "no trusted authority has signed"),
            ("BadSignature", "no trusted authority has signed"),
        ] {
            let said = untrusted(&format!("io: invalid peer certificate: {why}"));
            assert!(said.is_some_and(|said| said.contains(told)), "{why}: {said:?}");
        }
        assert_eq!(untrusted("Connection refused (os error 111)"), None);
    }
}

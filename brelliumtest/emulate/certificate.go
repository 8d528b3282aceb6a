package emulate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"
)

// ownCertificate makes a certificate for this machine, the host of addr and that of
// storageURL. It writes the certificate, without its key, to a new file.
func ownCertificate(addr, storageURL string) (config *tls.Config, path string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	if u, err := url.Parse(storageURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name) // that of a container
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "brellium-emulator"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true, // so that it can be trusted as it is
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, "", err
	}
	file, err := os.CreateTemp("", "brellium-emulator-*.pem")
	if err != nil {
		return nil, "", err
	}
	err = pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	if closed := file.Close(); err == nil {
		err = closed
	}
	config = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	return config, file.Name(), err
}

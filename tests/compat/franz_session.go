package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func main() {
	bootstrap, ca, mechanism, user, secret, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	pem, err := os.ReadFile(ca)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var login sasl.Mechanism
	switch mechanism {
	case "SCRAM-SHA-512":
		login = scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	case "SCRAM-SHA-256":
		login = scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "PLAIN":
		login = plain.Auth{User: user, Pass: secret}.AsMechanism()
	default:
		login = oauth.Auth{Token: secret}.AsMechanism()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DialTLSConfig(&tls.Config{RootCAs: roots}), kgo.SASL(login),
		kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr())
	fetches := client.PollFetches(ctx)
	check(fetches.Err())
	fmt.Println(string(fetches.Records()[0].Value))
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// call draws one call that gets a 503, a 429 and a 401 before its result.
func call(ctx context.Context) (*diagram, error) {
	d := &diagram{
		title: "How a call goes: limiter, token, retry",
		lanes: []lane{{"your program", 110}, {"client", 430}, {"API", 840}},
	}
	const program, client, api = 0, 1, 2
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve,
		brelliumtest.Status(503, "UNAVAILABLE"),
		brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1"),
		brelliumtest.RevokedToken())
	observer := brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
		mint := e.Operation == "oauth.token"
		switch e.Kind {
		case brellium.EventCallStart:
			if mint {
				d.note(client, "a new token, one request for all calls that wait")
			} else {
				d.message(program, client, "Audits.Retrieve(ctx, id)", "")
			}
		case brellium.EventAttemptStart:
			if !mint {
				d.note(client, fmt.Sprintf("attempt %d: a turn of the rate limiter, a valid token", e.Attempt))
			}
			d.message(client, api, e.Method+" "+e.PathTemplate, "")
		case brellium.EventAttemptEnd:
			d.message(api, client, fmt.Sprintf("%d: %s", e.StatusCode, e.Verdict), class(e.Verdict))
		case brellium.EventWait:
			switch {
			case e.Verdict == brellium.VerdictUnknown && e.Wait <= time.Second/2:
				d.note(client, "a read: retry, after a random wait of up to 0.5 s")
			case e.Verdict == brellium.VerdictThrottled && e.Wait >= time.Second && e.Wait <= 3*time.Second/2:
				d.note(client, "all calls wait 1 s, as asked, and up to 0.5 s more")
			case e.Verdict == brellium.VerdictUnauthorized && e.Wait == 0:
			default:
				d.note(client, fmt.Sprintf("unexpected: %s, a wait of %s", e.Verdict, e.Wait))
			}
		case brellium.EventCallEnd:
			if !mint {
				d.message(client, program, fmt.Sprintf("the audit, after %d attempts", e.Attempt), class(e.Verdict))
			}
		}
		return ctx
	})
	c, err := emulator.Client(brellium.WithObserver(observer))
	if err != nil {
		return nil, err
	}
	_, err = c.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	return d, err
}

// class returns the class of an arrow.
func class(verdict brellium.Verdict) string {
	switch verdict {
	case brellium.VerdictDone:
		return "good"
	case brellium.VerdictThrottled:
		return "slow"
	}
	return "bad"
}

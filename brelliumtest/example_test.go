package brelliumtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func Example() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, audit.Flags)
	// Output: complete [Failed Missing Signature]
}

// Test how your code handles a user who is already invited.
func ExampleEmulator_Inject() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Status(409, "USER_EXISTS"))

	_, err = client.Users.Create(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
	var apiErr *brellium.APIError
	if errors.As(err, &apiErr) {
		fmt.Println(apiErr.StatusCode, apiErr.Code)
	}
	fmt.Println("requests:", emu.Count(brelliumtest.OpUserCreate))
	// Output:
	// 409 USER_EXISTS
	// requests: 1
}

// A response can get lost after the operation ran.
func ExampleDropAfter() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter())

	_, err = client.Users.Create(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
	fmt.Println("outcome unknown:", brellium.OutcomeUnknown(err))
	fmt.Println("invitations sent:", emu.Invitations("casey@example.test"))
	// Output:
	// outcome unknown: true
	// invitations sent: 1
}

func ExampleEmulator_SeedAudits() {
	emu := brelliumtest.New()
	emu.SeedAudits(999) // in addition to the sample audit
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	n, failed := 0, 0
	for audit, err := range client.Audits.All(context.Background(), brellium.AuditListParams{Limit: 100}) {
		if err != nil {
			log.Fatal(err)
		}
		n++
		if slices.Contains(audit.Flags, "Failed") {
			failed++
		}
	}
	fmt.Println(n, "audits,", failed, "failed, in", emu.Count(brelliumtest.OpAuditList), "pages")
	// Output: 1000 audits, 196 failed, in 10 pages
}

// On a port, any client in any language can use the emulator.
func ExampleEmulator_Start() {
	emu := brelliumtest.New()
	if err := emu.Start(); err != nil {
		log.Fatal(err)
	}
	defer emu.Close()

	request := fmt.Sprintf(`{"grant_type":"client_credentials","client_id":%q,"client_secret":%q}`, emu.ClientID, emu.ClientSecret)
	resp, err := http.Post(emu.URL+"/v2/oauth/token", "application/json", strings.NewReader(request))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.StatusCode, strings.Contains(string(body), `"expires_in":3600`))
	// Output: 200 true
}

// Check what your code sent.
func ExampleEmulator_Requests() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	params := brellium.AuditUpdateParams{Flags: []string{"Needs Review"}}
	if _, err := client.Audits.Update(context.Background(), brelliumtest.SampleAuditID, params); err != nil {
		log.Fatal(err)
	}
	for _, r := range emu.Requests(brelliumtest.OpAuditUpdate) {
		fmt.Println(r.Method, r.Status, string(r.Body))
	}
	// Output: PATCH 200 {"flags":["Needs Review"]}
}

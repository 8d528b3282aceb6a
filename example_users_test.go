package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Create sends the invitation once and says what stood in its way.
func ExampleUserService_Create() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	params := brellium.UserCreateParams{Email: "casey@example.test", Name: "Casey"}
	for range 2 {
		user, err := client.Users.Create(ctx, params)
		var apiErr *brellium.APIError
		switch {
		case err == nil:
			fmt.Println("invited", user.Name)
		case errors.As(err, &apiErr) && apiErr.Code == brellium.CodeInvitationPending:
			fmt.Println("invited before")
		case brellium.OutcomeUnknown(err):
			log.Fatal("may have been invited: Ensure settles that")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// invited Casey
	// invited before
}

// Ensure may be called whatever happened before: there is one user and one
// invitation in the end.
func ExampleUserService_Ensure() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		user, err := client.Users.Ensure(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.Email, emulator.Invitations(user.Email))
	}
	// Output:
	// casey@example.test 1
	// casey@example.test 1
	// casey@example.test 1
}

func ExampleUserService_Delete() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	user, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	if err != nil {
		log.Fatal(err)
	}

	if err := client.Users.Delete(ctx, user.UserID); err != nil && !errors.Is(err, brellium.ErrNotFound) {
		log.Fatal(err)
	}
	fmt.Println(len(emulator.Users()))
	// Output: 0
}

func ExampleEmailRecipientService_FindByEmail() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	_, err = client.EmailRecipients.FindByEmail(ctx, "casey@example.test")
	fmt.Println(errors.Is(err, brellium.ErrNotFound))

	if _, err = client.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: "casey@example.test"}); err != nil {
		log.Fatal(err)
	}
	found, err := client.EmailRecipients.FindByEmail(ctx, "Casey@Example.test")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Email)
	// Output:
	// true
	// casey@example.test
}

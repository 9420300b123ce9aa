//! `undercroft top`: the figures of a running server, live in a terminal. What they are is in
//! `top/figures.rs`, how they look in `top/view.rs`.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::status::StatusOptions;
use crate::top::figures::Figures;
use crate::top::screen::{Key, Screen};
use crate::top::{News, ask_again_and_again, view};

/// How long a key may wait for its effect.
const LOOK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// End after so many looks, the first of which shows figures since the server's start
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the figures one after another, as it is done where the output is no terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    server: StatusOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    // What is wrong with the options or the address is said on the usual screen.
    let first = args.server.stats()?;
    let mut figures = Figures::default();
    figures.take(&first, Instant::now());
    let (sender, news) = channel();
    let (server, every) = (args.server.clone(), Duration::from_secs(args.every));
    std::thread::spawn(move || ask_again_and_again(&server, every, &sender));
    if args.plain || !stdout().is_terminal() || !stdin().is_terminal() {
        return print(args, figures, &news);
    }
    let mut screen = Screen::new()?;
    let ended = watch(args, figures, &news, &mut screen);
    screen.leave();
    ended
}

/// Prints figures one after another.
fn print(args: &Args, mut figures: Figures, news: &Receiver<News>) -> Result<(), Error> {
    let mut looks = 0;
    loop {
        let mut out = stdout().lock();
        let every = Duration::from_secs(args.every);
        for line in view::lines(&figures, &args.server.uri, every, None) {
            writeln!(out, "{}", line.text)?;
        }
        writeln!(out)?;
        out.flush()?;
        drop(out);
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        loop {
            match news.recv() {
                Ok(News::Stats(stats, at)) => break figures.take(&stats, at),
                Ok(News::Advice(advice)) => figures.advise(advice.as_ref()),
                Ok(News::Lost(why)) => writeln!(stderr(), "undercroft: {why}; trying again")?,
                Ok(News::End) | Err(_) => return Ok(()),
            }
        }
    }
}

/// Shows figures on the whole screen until somebody ends it.
fn watch(
    args: &Args,
    mut figures: Figures,
    news: &Receiver<News>,
    screen: &mut Screen,
) -> Result<(), Error> {
    let (mut lost, mut first_line, mut looks) = (None, 0_usize, 1);
    let every = Duration::from_secs(args.every);
    loop {
        let lines = view::lines(&figures, &args.server.uri, every, lost.as_deref());
        first_line = screen.show(&lines, first_line)?;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        loop {
            match screen.key()? {
                Key::End => return Ok(()),
                Key::Down(lines) => first_line = first_line.saturating_add(lines),
                Key::Up(lines) => first_line = first_line.saturating_sub(lines),
                Key::Resized => {}
                Key::None => match news.recv_timeout(LOOK) {
                    Ok(News::Stats(stats, at)) => {
                        figures.take(&stats, at);
                        (lost, looks) = (None, looks + 1);
                    }
                    Ok(News::Advice(advice)) => figures.advise(advice.as_ref()),
                    Ok(News::Lost(why)) => lost = Some(why),
                    Ok(News::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    Err(RecvTimeoutError::Timeout) => continue,
                },
            }
            break;
        }
    }
}
